# Finds edgebuild in a Python environment, for a project that keeps this file in its CMAKE_MODULE_PATH. The same file
# is what an environment has as share/cmake/EdgeBuild/EdgeBuildConfig.cmake.
#
# Looked at, in this order: EDGEBUILD_PYTHON; EdgeBuild_ROOT, a checkout or an environment; the environment that this file
# is installed in; $VIRTUAL_ENV; .venv in the project; edgebuild-python.txt
# beside this file; the `edgebuild` command on PATH. The roots of a toolchain file play
# no part: the tool runs on this machine.
#
#   list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_SOURCE_DIR}/cmake")
#   find_package(EdgeBuild REQUIRED)

set(_edgebuild_pythons ${EDGEBUILD_PYTHON})
foreach(_edgebuild_prefix IN ITEMS
    "${EdgeBuild_ROOT}/.venv" "${EdgeBuild_ROOT}" "$ENV{EdgeBuild_ROOT}/.venv" "$ENV{EdgeBuild_ROOT}"
    "${CMAKE_CURRENT_LIST_DIR}/../../.." "$ENV{VIRTUAL_ENV}" "${PROJECT_SOURCE_DIR}/.venv" "${CMAKE_SOURCE_DIR}/.venv")
  if(EXISTS "${_edgebuild_prefix}/pyvenv.cfg")
    cmake_path(NORMAL_PATH _edgebuild_prefix)
    list(APPEND _edgebuild_pythons "${_edgebuild_prefix}/bin/python3" "${_edgebuild_prefix}/Scripts/python.exe")
  endif()
endforeach()

if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/edgebuild-python.txt") # as `edgebuild init` writes it, for one machine
  file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/edgebuild-python.txt" _edgebuild_python LIMIT_COUNT 1)
  list(APPEND _edgebuild_pythons "${_edgebuild_python}")
endif()

set(_edgebuild_config "")
set(_edgebuild_reason "no Python environment has edgebuild (try: pip install edgebuild)")
if(EDGEBUILD_PYTHON) # asked for by name: no other one takes its place
  set(_edgebuild_pythons "${EDGEBUILD_PYTHON}")
  set(_edgebuild_reason "EDGEBUILD_PYTHON=${EDGEBUILD_PYTHON} has no edgebuild (try: pip install edgebuild)")
endif()
foreach(_edgebuild_python IN LISTS _edgebuild_pythons)
  if(NOT _edgebuild_config AND EXISTS "${_edgebuild_python}")
    execute_process(
      COMMAND "${_edgebuild_python}" -P -c "from edgebuild.doors import cmake_dir; print(cmake_dir().as_posix())"
      OUTPUT_VARIABLE _edgebuild_config OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_edgebuild_config)
      set(EDGEBUILD_PYTHON "${_edgebuild_python}")
    endif()
  endif()
endforeach()
if(NOT _edgebuild_config AND NOT EDGEBUILD_PYTHON)
  find_program(_edgebuild_command edgebuild NO_CMAKE_FIND_ROOT_PATH)
  if(_edgebuild_command)
    execute_process(COMMAND "${_edgebuild_command}" cmake-dir
      OUTPUT_VARIABLE _edgebuild_config OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  unset(_edgebuild_command CACHE)
endif()

if(EDGEBUILD_FIND_TOOLCHAIN) # included by a toolchain file, which wants that of edgebuild
  unset(EDGEBUILD_FIND_TOOLCHAIN)
  if(NOT _edgebuild_config)
    message(FATAL_ERROR "EdgeBuild: ${_edgebuild_reason}")
  endif()
  include("${_edgebuild_config}/toolchain.cmake")
  return()
endif()

if(_edgebuild_config)
  include("${_edgebuild_config}/EdgeBuildConfigVersion.cmake")
  include("${_edgebuild_config}/EdgeBuildConfig.cmake")
  set(EdgeBuild_VERSION "${PACKAGE_VERSION}")
  set(_edgebuild_reason "${EdgeBuild_NOT_FOUND_MESSAGE}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(EdgeBuild
  REQUIRED_VARS EDGEBUILD_PYTHON _edgebuild_config
  VERSION_VAR EdgeBuild_VERSION
  HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "${_edgebuild_reason}"
  NAME_MISMATCHED)
