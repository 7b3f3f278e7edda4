# RISC-V firmware: cmake -DCMAKE_TOOLCHAIN_FILE=<this> -DEDGEBUILD_TARGET=riscv-virt
if(NOT EDGEBUILD_TARGET)
  set(EDGEBUILD_TARGET riscv-virt)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/toolchain.cmake")
