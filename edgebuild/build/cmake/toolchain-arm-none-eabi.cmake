# Arm M-profile firmware: cmake -DCMAKE_TOOLCHAIN_FILE=<this> -DEDGEBUILD_TARGET=mps2-an386
if(NOT EDGEBUILD_TARGET)
  set(EDGEBUILD_TARGET mps2-an386)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/toolchain.cmake")
