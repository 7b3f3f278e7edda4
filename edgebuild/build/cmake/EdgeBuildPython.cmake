# Which Python runs edgebuild. The project's own Python need not have it, so this is never FindPython's answer.

# Ends with an error, in front of which stands the line of the call: editors open it. CMake names the line of this file.
# `target`, `call` and arg_* are those of the caller: the first argument of the call, a pattern of the function's name if
# it adds no library, and the other arguments.
function(_edgebuild_fail text)
  if(ARGC GREATER 1)
    string(APPEND text "${ARGV1}")
  endif()
  string(REGEX REPLACE ";([^ ])" " \\1" text "${text}") # lists of what is known
  get_cmake_property(words VARIABLES)
  list(FILTER words INCLUDE REGEX "^arg_")
  foreach(name IN LISTS words)
    list(APPEND words "${${name}}")
  endforeach()
  list(TRANSFORM words REPLACE "^arg_" "")
  get_property(python GLOBAL PROPERTY EDGEBUILD_PYTHON)
  execute_process(
    COMMAND "${python}" -P -m edgebuild.build.check "${CMAKE_CURRENT_LIST_FILE}" "${target}" "${call}" "${words}"
    OUTPUT_VARIABLE place)
  if(place)
    message(NOTICE "${place}: error: ${text}")
  endif()
  message(FATAL_ERROR "${text}")
endfunction()

# The interpreter of the environment that `folder` belongs to: a checkout's .venv, the environment that the package is
# installed in, or the system's. The nearest one that has edgebuild; nothing where none has.
function(_edgebuild_look_for_python result folder)
  set(${result} "" PARENT_SCOPE)
  set(below "")
  while(NOT folder STREQUAL below)
    foreach(python IN ITEMS .venv/bin/python3 .venv/Scripts/python.exe bin/python3 Scripts/python.exe)
      if(EXISTS "${folder}/${python}")
        execute_process(COMMAND "${folder}/${python}" -P -c "import edgebuild" RESULT_VARIABLE status
          OUTPUT_QUIET ERROR_QUIET)
        if(status EQUAL 0)
          set(${result} "${folder}/${python}" PARENT_SCOPE)
          return()
        endif()
      endif()
    endforeach()
    set(below "${folder}")
    cmake_path(GET below PARENT_PATH folder)
  endwhile()
endfunction()

# The interpreter that runs edgebuild: what EDGEBUILD_PYTHON says, else that of the environment of this file. Without
# one that has this edgebuild, `result` is empty, and EdgeBuild_NOT_FOUND_MESSAGE says why.
function(_edgebuild_find_python result)
  get_property(checked GLOBAL PROPERTY EDGEBUILD_PYTHON)
  set(python "${EDGEBUILD_PYTHON}")
  if(NOT python)
    set(python "${checked}")
  endif()
  set(wrong "")
  if(NOT python)
    _edgebuild_look_for_python(python "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")
    if(NOT python)
      string(CONCAT wrong "no Python with edgebuild beside or above ${CMAKE_CURRENT_FUNCTION_LIST_DIR}; "
        "in a checkout run ./sconsw, elsewhere set EDGEBUILD_PYTHON")
    endif()
  elseif(NOT python STREQUAL checked) # in the build it would fail
    include("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/EdgeBuildConfigVersion.cmake")
    execute_process(COMMAND "${python}" -P -c "import edgebuild; print(edgebuild.__version__)"
      RESULT_VARIABLE status OUTPUT_VARIABLE version ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0)
      string(CONCAT wrong "EDGEBUILD_PYTHON=${python} has no edgebuild; "
        "run `${python} -m pip install edgebuild`, or name the Python of an environment that has it")
    elseif(NOT version STREQUAL PACKAGE_VERSION)
      string(CONCAT wrong "EDGEBUILD_PYTHON=${python} has edgebuild ${version}, and this CMake package is that of "
        "${PACKAGE_VERSION}; name the Python of one environment for both")
    endif()
  endif()
  if(wrong)
    set(EdgeBuild_NOT_FOUND_MESSAGE "${wrong}" PARENT_SCOPE)
    set(python "")
  endif()
  set(${result} "${python}" PARENT_SCOPE)
endfunction()

# Sets EDGEBUILD_* in the caller to what `python -m edgebuild.build.cmake` says of a target; its linker script goes to the
# folder that may be given.
function(_edgebuild_describe_target name)
  _edgebuild_find_python(EDGEBUILD_PYTHON)
  if(NOT EDGEBUILD_PYTHON)
    message(FATAL_ERROR "edgebuild: ${EdgeBuild_NOT_FOUND_MESSAGE}")
  endif()
  execute_process(
    COMMAND "${EDGEBUILD_PYTHON}" -P -m edgebuild.build.cmake "${name}" ${ARGN}
    OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "EDGEBUILD_TARGET=${name}: ${error}")
  endif()
  string(JSON isa GET "${text}" core isa)
  set(EDGEBUILD_ISA "${isa}" PARENT_SCOPE)
  string(JSON members LENGTH "${text}")
  math(EXPR last "${members} - 1")
  foreach(index RANGE ${last})
    string(JSON key MEMBER "${text}" ${index})
    string(JSON type TYPE "${text}" ${key})
    string(TOUPPER "EDGEBUILD_${key}" variable)
    if(type STREQUAL STRING)
      string(JSON value GET "${text}" ${key})
      set(${variable} "${value}" PARENT_SCOPE)
    elseif(type STREQUAL ARRAY AND NOT key STREQUAL memories)
      set(values "")
      string(JSON count LENGTH "${text}" ${key})
      while(count GREATER 0)
        math(EXPR count "${count} - 1")
        string(JSON value GET "${text}" ${key} ${count})
        list(PREPEND values "${value}")
      endwhile()
      set(${variable} "${values}" PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# COMPONENTS of find_package: what is not among ARGN, or not installed, is not found.
macro(_edgebuild_check_components)
  foreach(_edgebuild_component IN LISTS EdgeBuild_FIND_COMPONENTS)
    set(_edgebuild_missing "")
    if(NOT ";${ARGN};" MATCHES ";${_edgebuild_component};")
      string(REPLACE ";" " " _edgebuild_missing "${ARGN}")
      set(_edgebuild_missing "there is no component '${_edgebuild_component}' among ${_edgebuild_missing}")
    elseif(_edgebuild_component STREQUAL "tests")
      execute_process(COMMAND "${EDGEBUILD_PYTHON}" -P -c "import onnxruntime, tflite_micro" RESULT_VARIABLE
        _edgebuild_status OUTPUT_QUIET ERROR_QUIET)
      if(NOT _edgebuild_status EQUAL 0)
        set(_edgebuild_missing "component 'tests' needs reference interpreters: pip install 'edgebuild[verify]'")
      endif()
    endif()
    if(_edgebuild_missing)
      set(EdgeBuild_${_edgebuild_component}_FOUND FALSE)
      if(EdgeBuild_FIND_REQUIRED_${_edgebuild_component})
        set(EdgeBuild_FOUND FALSE)
        set(EdgeBuild_NOT_FOUND_MESSAGE "${_edgebuild_missing}")
      endif()
    else()
      set(EdgeBuild_${_edgebuild_component}_FOUND TRUE)
    endif()
  endforeach()
endmacro()
