# A CMake toolchain from what edgebuild knows of EDGEBUILD_TARGET: compiler, flags, start-up code, linker script, emulator.
# -DEDGEBUILD_LIBC=ON compiles and links against the toolchain's C library, which floating-point models need.

include("${CMAKE_CURRENT_LIST_DIR}/EdgeBuildPython.cmake")
# A file is given from the source folder or from where cmake was called; projects that try a compiler stand elsewhere.
if(EDGEBUILD_TARGET MATCHES "\\.ya?ml$" AND NOT IS_ABSOLUTE "${EDGEBUILD_TARGET}")
  foreach(_edgebuild_folder IN ITEMS "${CMAKE_SOURCE_DIR}" "$ENV{PWD}")
    if(EXISTS "${_edgebuild_folder}/${EDGEBUILD_TARGET}")
      set(EDGEBUILD_TARGET "${_edgebuild_folder}/${EDGEBUILD_TARGET}")
      break()
    endif()
  endforeach()
endif()
_edgebuild_describe_target("${EDGEBUILD_TARGET}")

set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR "${EDGEBUILD_ISA}")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # a program would need the linker script
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES EDGEBUILD_TARGET EDGEBUILD_PYTHON EDGEBUILD_LIBC)

if(EDGEBUILD_LIBC)
  list(APPEND EDGEBUILD_CFLAGS ${EDGEBUILD_LIBC_FLAGS})
  list(PREPEND EDGEBUILD_LIBS ${EDGEBUILD_LIBM})
endif()
set(CMAKE_C_COMPILER "${EDGEBUILD_COMPILER}")
string(REGEX REPLACE "gcc$" "g++" CMAKE_CXX_COMPILER "${EDGEBUILD_COMPILER}")
set(CMAKE_ASM_COMPILER "${EDGEBUILD_COMPILER}")
list(JOIN EDGEBUILD_CFLAGS " " CMAKE_C_FLAGS_INIT)
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT} -fno-exceptions -fno-rtti")
set(CMAKE_ASM_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")
list(JOIN EDGEBUILD_LIBS " " CMAKE_C_STANDARD_LIBRARIES_INIT)
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "${CMAKE_C_STANDARD_LIBRARIES_INIT}")

list(FIND EDGEBUILD_RUNNER "{elf}" _edgebuild_elf)
if(NOT _edgebuild_elf EQUAL -1)
  list(SUBLIST EDGEBUILD_RUNNER 0 ${_edgebuild_elf} CMAKE_CROSSCOMPILING_EMULATOR) # CMake appends the program
endif()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
