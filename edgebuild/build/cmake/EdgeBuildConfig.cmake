# find_package(EdgeBuild): neural networks as libraries.
#
#   edgebuild_add_model(<target> MODEL <file> [NAME <c identifier>] [TARGET <name or yaml>]
#       [<option of `edgebuild model`> <value>]...
#       [EXCLUDE_FROM_ALL])
#     A static library with the model; whoever links it finds <name>.h. NAME is <target> where it is not given, and
#     TARGET is what EDGEBUILD_TARGET says (the toolchain files set it), or host. Options are written in upper case and
#     with _ for -, such as RAM 16K, TILE auto or MAX_MAC_OVERHEAD 10; `edgebuild model --help` lists them.
#   edgebuild_add_models(<target> MODELS <file>... [SHARE exclusive|pipeline|concurrent] [BUFFERS <buffer>...]
#       [the same options])
#     One library for many models, each named like its file. With SHARE they have one arena, in which there are buffers
#     of the application, too, each as audio=4K,alive=kws.input: see <target>.h.
#   edgebuild_add_cluster(<target> MODEL <file> CLUSTER <yaml> DEVICES <name>... [TARGET <name or yaml>]
#       [EXCLUDE_FROM_ALL])
#     A library <target>_<name> for each of these devices of a cluster, with its part of the model. Programs need a
#     port of eb_link.h besides; ${EDGEBUILD_HAL}/src has some.
#   edgebuild_add_bf_driver(<target> SOURCES <file>... [NAME <c identifier>] [TARGET <name or yaml>]
#       [<option of `edgebuild driver`> <value>...]... [EXCLUDE_FROM_ALL])
#     A static library with the driver that sources in the bfGroup dialect become, and its headers <name>_regs.h,
#     <name>_systemc.h.
#   edgebuild_add_clock_config(<target> [NAME <c identifier>] [TARGET <name or yaml>]
#       [HSE <hz, 8MHz>] [SYSCLK <hz>...] [EXCLUDE_FROM_ALL])
#     A static library with the functions that switch the chip's clocks; whoever links it finds clock_config.h.
#   edgebuild_firmware(<executable> [LINKER_SCRIPT <file>])
#     Start-up code, linker script and semihosting of the target that the toolchain file was given, and a target
#     run_<executable> for its emulator.
#   edgebuild_report(<executable> [FLASH_BUDGET <bytes>] [RAM_BUDGET <bytes>] [STACK_BUDGET <bytes>] [ENTRY <function>])
#     Targets <executable>_size, which prints what models, drivers and the rest take of flash, RAM and stack, and
#     <executable>_report, which writes that and a bill of materials (SPDX) as well. More than a budget fails the link.
#   edgebuild_add_test(<target> [TARGET <name or yaml>] [INPUTS <file>] [LABELS <file>] [MIN_ACCURACY <0 to 1>]
#       [MAX_INSTRUCTIONS <n>] [NAME <test>])
#     A test for CTest of each model of the library: runs it, in the simulator of a target, against its reference.
#
# A program that includes <name>_arena.h, which has the size of the arena, links <target>_arena beside <target>. With
# EDGEBUILD_PROGRESS set to ON, Ninja shows what a long search is at while it runs.
#
# add_model, add_models, add_cluster, add_bf_driver and add_clock_config are short names; set EDGEBUILD_NO_SHORT_NAMES before
# find_package to go without.
#
# How a build stays quiet: the stamp is the only output that rules compare, the generated files are by-products that
# are written only if their bytes change, and the depfile lists what was read. One file in it stands for edgebuild's code.

# CMake 3.31 has a target `codegen` of its own, if the policy of the project says so. Else there is one of ours.
set(_edgebuild_codegen OLD)
if(POLICY CMP0171)
  cmake_policy(GET CMP0171 _edgebuild_codegen)
endif()
set_property(GLOBAL PROPERTY EDGEBUILD_CODEGEN "${_edgebuild_codegen}")

cmake_minimum_required(VERSION 3.20...4.1)

include("${CMAKE_CURRENT_LIST_DIR}/EdgeBuildPython.cmake")
_edgebuild_find_python(EDGEBUILD_PYTHON)
if(NOT EDGEBUILD_PYTHON)
  set(EdgeBuild_FOUND FALSE)
  return()
endif()
set_property(GLOBAL PROPERTY EDGEBUILD_PYTHON "${EDGEBUILD_PYTHON}")

include("${CMAKE_CURRENT_LIST_DIR}/EdgeBuildOptions.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/EdgeBuildProgram.cmake")
set_property(GLOBAL PROPERTY EDGEBUILD_CMAKE_DIR "${CMAKE_CURRENT_LIST_DIR}")
_edgebuild_check_components(models drivers clocks clusters firmware reports tests)

function(edgebuild_add_model target)
  _edgebuild_options(MODEL)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL" "MODEL;NAME;TARGET;${single}" "${lists}")
  _edgebuild_check_arguments("edgebuild_add_model(${target})" MODEL)
  if(NOT DEFINED arg_NAME)
    set(arg_NAME "${target}")
  endif()
  _edgebuild_add_library("${target}")
  _edgebuild_add_model_rule("${target}" "${arg_NAME}" "${arg_MODEL}")
endfunction()

function(edgebuild_add_models target)
  set(kind MODEL)
  if("SHARE" IN_LIST ARGN OR "BUFFERS" IN_LIST ARGN)
    set(kind GROUP)
  endif()
  _edgebuild_options(${kind})
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL" "TARGET;${single}" "MODELS;${lists}")
  _edgebuild_check_arguments("edgebuild_add_models(${target})" MODELS)
  _edgebuild_add_library("${target}")
  if(kind STREQUAL "GROUP")
    _edgebuild_add_group_rule("${target}")
    return()
  endif()
  foreach(model IN LISTS arg_MODELS)
    cmake_path(GET model STEM LAST_ONLY stem)
    string(MAKE_C_IDENTIFIER "${stem}" name)
    _edgebuild_add_model_rule("${target}" "${name}" "${model}")
  endforeach()
endfunction()

function(edgebuild_add_cluster target)
  # EDGEBUILD_HAL: where the C is that ships, for the caller's ports.
  _edgebuild_describe_target(host)
  cmake_path(GET EDGEBUILD_INCLUDE PARENT_PATH EDGEBUILD_HAL)
  set(EDGEBUILD_HAL "${EDGEBUILD_HAL}" PARENT_SCOPE)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL" "MODEL;CLUSTER;TARGET" "DEVICES")
  foreach(required IN ITEMS MODEL CLUSTER DEVICES)
    if(NOT arg_${required})
      _edgebuild_fail("edgebuild_add_cluster(${target}): ${required} is missing")
    endif()
  endforeach()
  cmake_path(ABSOLUTE_PATH arg_CLUSTER BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE file)
  get_source_file_property(generated "${file}" GENERATED)
  if(NOT EXISTS "${file}" AND NOT generated)
    _edgebuild_fail("edgebuild_add_cluster(${target}): CLUSTER: no such file: ${file}")
  endif()
  set(more "")
  if(DEFINED arg_TARGET)
    list(APPEND more TARGET "${arg_TARGET}")
  endif()
  if(arg_EXCLUDE_FROM_ALL)
    list(APPEND more EXCLUDE_FROM_ALL)
  endif()
  foreach(device IN LISTS arg_DEVICES)
    edgebuild_add_model("${target}_${device}" MODEL "${arg_MODEL}" CLUSTER "${arg_CLUSTER}" DEVICE "${device}"
      ${arg_UNPARSED_ARGUMENTS} ${more})
  endforeach()
endfunction()

function(edgebuild_add_bf_driver target)
  _edgebuild_options(DRIVER)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL" "NAME;TARGET;FOR;${single}" "SOURCES;${lists}")
  _edgebuild_check_arguments("edgebuild_add_bf_driver(${target})" SOURCES)
  if(NOT DEFINED arg_NAME)
    set(arg_NAME "${target}")
  endif()
  _edgebuild_add_library("${target}")
  _edgebuild_add_driver_rule("${target}" "${arg_NAME}")
endfunction()

function(edgebuild_add_clock_config target)
  _edgebuild_options(CLOCK)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL" "NAME;TARGET;${single}" "${lists}")
  _edgebuild_check_arguments("edgebuild_add_clock_config(${target})" "")
  if(NOT DEFINED arg_NAME)
    set(arg_NAME "${target}")
  endif()
  _edgebuild_add_library("${target}")
  _edgebuild_check_name("${target}" "edgebuild clocks '${arg_NAME}' of ${target}" "${arg_NAME}")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/edgebuild/${arg_NAME}")
  _edgebuild_write_request("${folder}" clock "${arg_NAME}")
  get_property(outputs GLOBAL PROPERTY EDGEBUILD_CLOCK_OUTPUTS)
  list(TRANSFORM outputs PREPEND "${folder}/")
  set_property(TARGET "${target}" APPEND PROPERTY PUBLIC_HEADER "${folder}/clock_config.h")
  _edgebuild_add_command("${target}" "${folder}/${arg_NAME}" "" "" ${outputs})
endfunction()

function(edgebuild_firmware executable)
  set(target "${executable}") # for errors
  set(call edgebuild_firmware)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LINKER_SCRIPT" "")
  if(NOT EDGEBUILD_LINKER_SCRIPT)
    _edgebuild_fail("edgebuild_firmware(${executable}): no bare target; configure with "
      "-DCMAKE_TOOLCHAIN_FILE=<edgebuild cmake-dir>/toolchain-arm-none-eabi.cmake -DEDGEBUILD_TARGET=<name>")
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/edgebuild")
  _edgebuild_describe_target("${EDGEBUILD_TARGET}" "${folder}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${EDGEBUILD_FILES})

  target_sources(${executable} PRIVATE ${EDGEBUILD_STARTUP} ${EDGEBUILD_RUNNER_SOURCES})
  foreach(source IN LISTS EDGEBUILD_STARTUP)
    if(source MATCHES "\\.S$")
      _edgebuild_compile_as_assembler("${source}" assembler-with-cpp)
    endif()
  endforeach()
  target_include_directories(${executable} PRIVATE ${EDGEBUILD_INCLUDE})
  if(arg_LINKER_SCRIPT) # in the place of the one that ships
    cmake_path(ABSOLUTE_PATH arg_LINKER_SCRIPT BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    if(NOT EXISTS "${arg_LINKER_SCRIPT}")
      _edgebuild_fail("edgebuild_firmware(${executable}): LINKER_SCRIPT: no such file: ${arg_LINKER_SCRIPT}")
    endif()
    list(TRANSFORM EDGEBUILD_LDFLAGS REPLACE "^-T.*$" "-T${arg_LINKER_SCRIPT}")
    set(EDGEBUILD_LINKER_SCRIPT "${arg_LINKER_SCRIPT}")
  endif()
  list(TRANSFORM EDGEBUILD_LDFLAGS REPLACE "-Wl,-T,(${EDGEBUILD_REGIONS_SCRIPT})" "-Wl,-T,${folder}/\\1")
  target_link_options(${executable} PRIVATE ${EDGEBUILD_LDFLAGS})
  set_target_properties(${executable} PROPERTIES EDGEBUILD_LINK_FRAGMENTS ON)
  set_property(TARGET ${executable} APPEND PROPERTY
    LINK_DEPENDS "${EDGEBUILD_LINKER_SCRIPT}" "${folder}/${EDGEBUILD_REGIONS_SCRIPT}")
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    add_custom_target(run_${executable}
      COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} "$<TARGET_FILE:${executable}>"
      DEPENDS ${executable} USES_TERMINAL VERBATIM)
  endif()
endfunction()

if(NOT EDGEBUILD_NO_SHORT_NAMES) # with a parameter, so that CMake names the line of a call without any
  # Functions, since a macro reads its arguments a second time, with their backslashes.
  function(add_model target)
    edgebuild_add_model(${ARGV})
  endfunction()
  function(add_models target)
    edgebuild_add_models(${ARGV})
  endfunction()
  macro(add_cluster target) # sets EDGEBUILD_HAL in the caller
    edgebuild_add_cluster(${ARGV})
  endmacro()
  function(add_bf_driver target)
    edgebuild_add_bf_driver(${ARGV})
  endfunction()
  function(add_clock_config target)
    edgebuild_add_clock_config(${ARGV})
  endfunction()
endif()

# ---- behind the scenes; arg_* are those of the function that calls

# Sets `options` to the options of a kind of request, `single` to those with one value and `lists` to the others.
macro(_edgebuild_options kind)
  get_property(options GLOBAL PROPERTY EDGEBUILD_${kind}_OPTIONS)
  get_property(lists GLOBAL PROPERTY EDGEBUILD_LIST_OPTIONS)
  list(TRANSFORM lists REPLACE "=.*" "")
  set(single ${options})
  list(REMOVE_ITEM single ${lists})
endmacro()

# `required`: the argument that must be there, or nothing.
macro(_edgebuild_check_arguments where required)
  if(arg_UNPARSED_ARGUMENTS)
    list(GET arg_UNPARSED_ARGUMENTS 0 first)
    _edgebuild_fail("${where}: unknown argument '${first}'; known are ${required} NAME TARGET ${options}")
  elseif(arg_KEYWORDS_MISSING_VALUES)
    _edgebuild_fail("${where}: no value given for ${arg_KEYWORDS_MISSING_VALUES}")
  elseif(NOT "${required}" STREQUAL "" AND NOT arg_${required})
    _edgebuild_fail("${where}: ${required} is missing")
  elseif(NOT "${target}" MATCHES "^[A-Za-z0-9_.+-]+$")
    _edgebuild_fail("${where}: a target has a name of letters, digits and _ . + -")
  elseif(TARGET "${target}")
    _edgebuild_fail("${where}: there is a target of this name already")
  endif()
endmacro()

function(_edgebuild_add_library target)
  set(exclude "")
  if(arg_EXCLUDE_FROM_ALL)
    set(exclude EXCLUDE_FROM_ALL)
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "C" IN_LIST languages)
    _edgebuild_fail("${target}: generated sources are C; write project(... LANGUAGES C) or enable_language(C)")
  endif()
  add_library("${target}" STATIC ${exclude})
  add_library("edgebuild::${target}" ALIAS "${target}")
  set_target_properties("${target}" PROPERTIES LINKER_LANGUAGE C FOLDER edgebuild)
  foreach(linter IN ITEMS CLANG_TIDY CPPCHECK CPPLINT INCLUDE_WHAT_YOU_USE) # those are for what people write
    set_target_properties("${target}" PROPERTIES "C_${linter}" "" "CXX_${linter}" "")
  endforeach()
  if(TARGET zephyr_interface) # Zephyr has its flags there, and none in CMAKE_C_FLAGS
    target_link_libraries("${target}" PRIVATE zephyr_interface)
  endif()
  if("c_std_11" IN_LIST CMAKE_C_COMPILE_FEATURES)
    target_compile_features("${target}" PRIVATE c_std_11) # whatever older standard the project has
  endif()
endfunction()

# A name is a prefix in C, and a folder of its own.
function(_edgebuild_check_name target where name)
  if(NOT name MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    _edgebuild_fail("${where}: the name must be a C identifier; give one with NAME")
  endif()
  # In upper case, as in macros; and file systems there are that see no difference.
  string(TOUPPER "${name}" upper)
  get_property(known DIRECTORY PROPERTY EDGEBUILD_NAMES)
  if(upper IN_LIST known)
    _edgebuild_fail("${where}: the name is taken in this directory (case makes no difference); "
      "give another with NAME")
  endif()
  set_property(DIRECTORY APPEND PROPERTY EDGEBUILD_NAMES "${upper}")
  # Two libraries with functions of one name are right as long as no program links both.
  set_property(GLOBAL APPEND PROPERTY "EDGEBUILD_LIBRARIES_OF_${name}" "${target}")
  get_property(libraries GLOBAL PROPERTY "EDGEBUILD_LIBRARIES_OF_${name}")
  list(LENGTH libraries count)
  if(count EQUAL 2)
    cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [==[${CMAKE_SOURCE_DIR}]==]
      CALL _edgebuild_check_programs \"${name}\" [==[${CMAKE_SOURCE_DIR}]==])")
  endif()
endfunction()

# An error if a program below `folder` links two libraries with functions of this name: the linker would take the first
# for both, and say nothing.
function(_edgebuild_check_programs name folder)
  get_property(libraries GLOBAL PROPERTY "EDGEBUILD_LIBRARIES_OF_${name}")
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(program IN LISTS targets)
    get_target_property(type "${program}" TYPE)
    if(type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)$")
      _edgebuild_linked_by(linked "${program}")
      set(found "")
      foreach(library IN LISTS libraries)
        if(library IN_LIST linked)
          list(APPEND found "${library}")
        endif()
      endforeach()
      list(LENGTH found count)
      if(count GREATER 1)
        list(JOIN found ", " found)
        get_target_property(folder "${program}" SOURCE_DIR)
        set(CMAKE_CURRENT_LIST_FILE "${folder}/CMakeLists.txt")
        set(target "${program}")
        set(call "add_(executable|library)")
        _edgebuild_fail("program '${program}' links more than one library with the functions of '${name}': ${found}; "
          "give one of them another NAME")
      endif()
    endif()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    _edgebuild_check_programs("${name}" "${inner}")
  endforeach()
endfunction()

# All targets that a program links, directly or through libraries.
function(_edgebuild_linked_by result program)
  set(linked "")
  set(open "${program}")
  while(open)
    list(POP_FRONT open next)
    set(libraries "")
    foreach(property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(found "${next}" ${property})
      if(found)
        list(APPEND libraries ${found})
      endif()
    endforeach()
    foreach(library IN LISTS libraries)
      while(library MATCHES "^\\$<[A-Z_]+:(.*)>$") # LINK_ONLY, BUILD_INTERFACE
        set(library "${CMAKE_MATCH_1}")
      endwhile()
      if(TARGET "${library}")
        get_target_property(aliased "${library}" ALIASED_TARGET)
        if(aliased)
          set(library "${aliased}")
        endif()
        if(NOT library IN_LIST linked)
          list(APPEND linked "${library}")
          list(APPEND open "${library}")
        endif()
      endif()
    endforeach()
  endwhile()
  set(${result} "${linked}" PARENT_SCOPE)
endfunction()

# Sets `result` to the path of a model's file.
function(_edgebuild_find_model result target where model)
  cmake_path(ABSOLUTE_PATH model BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}" NORMALIZE OUTPUT_VARIABLE made)
  cmake_path(ABSOLUTE_PATH model BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  if(NOT EXISTS "${model}")
    get_source_file_property(generated "${model}" GENERATED)
    get_source_file_property(made_generated "${made}" GENERATED)
    if(made_generated) # as in add_executable: a source, else what another rule makes
      set(model "${made}")
    elseif(NOT generated)
      _edgebuild_fail("${where}: no such file: ${model}; if a rule of another folder makes it, call "
        "set_source_files_properties(<file> PROPERTIES GENERATED ON) before, and add_dependencies(${target} <its target>)")
    endif()
  endif()
  set(${result} "${model}" PARENT_SCOPE)
endfunction()

# The rule that makes the files of models in one arena, as sources of the library.
function(_edgebuild_add_group_rule target)
  set(where "edgebuild models '${target}'")
  _edgebuild_check_name("${target}" "${where}" "${target}")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/edgebuild/${target}")
  set(base "${folder}/${target}")
  get_property(products GLOBAL PROPERTY EDGEBUILD_GROUP_SUFFIXES)
  list(TRANSFORM products PREPEND "${base}")
  get_property(suffixes GLOBAL PROPERTY EDGEBUILD_MODEL_SUFFIXES)
  set(models "")
  set(bases "")
  foreach(model IN LISTS arg_MODELS)
    _edgebuild_find_model(model "${target}" "${where}" "${model}")
    cmake_path(GET model STEM LAST_ONLY stem)
    string(MAKE_C_IDENTIFIER "${stem}" name)
    _edgebuild_check_name("${target}" "${where}" "${name}")
    list(APPEND models "${model}")
    list(APPEND bases "${folder}/${name}")
    list(TRANSFORM suffixes PREPEND "${folder}/${name}" OUTPUT_VARIABLE files)
    list(APPEND products ${files} "${folder}/${name}_place.h")
  endforeach()
  _edgebuild_write_request("${folder}" group "${target}" ${models})
  set_property(TARGET "${target}" APPEND PROPERTY EDGEBUILD_MODELS "${chip}=${base}.req.json") # for edgebuild_add_test
  set(header "")
  _edgebuild_add_command("${target}" "${base}" "${models}" "" ${products})
  _edgebuild_link_support("${target}")
  foreach(base IN LISTS bases base)
    _edgebuild_link_places("${target}" "${base}")
    set_property(TARGET "${target}" APPEND PROPERTY PUBLIC_HEADER "${base}.h")
  endforeach()
endfunction()

# The rule that makes the files of one model, as sources of the library.
function(_edgebuild_add_model_rule target name model)
  set(where "edgebuild model '${name}' of ${target}")
  _edgebuild_check_name("${target}" "${where}" "${name}")
  _edgebuild_find_model(model "${target}" "${where}" "${model}")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/edgebuild/${name}")
  set(base "${folder}/${name}")
  _edgebuild_write_request("${folder}" model "${name}" "${model}")
  get_property(products GLOBAL PROPERTY EDGEBUILD_MODEL_SUFFIXES)
  list(TRANSFORM products PREPEND "${base}")
  set(header "")
  if(NOT arg_CLUSTER) # the parts of a cluster follow from its plan
    list(REMOVE_ITEM products "${base}.h")
    _edgebuild_add_header("${target}" "${base}" "${model}")
  endif()
  _edgebuild_add_command("${target}" "${base}" "${model}" "" ${products})
  _edgebuild_link_places("${target}" "${base}")
  _edgebuild_link_support("${target}")
  set_property(TARGET "${target}" APPEND PROPERTY PUBLIC_HEADER "${base}.h" "${base}_arena.h")
  set_property(TARGET "${target}" APPEND PROPERTY EDGEBUILD_MODELS "${chip}=${base}.req.json") # for edgebuild_add_test
  if(arg_CLUSTER)
    _edgebuild_describe_target(host) # for the C that ships
    target_sources("${target}" PRIVATE "${EDGEBUILD_INCLUDE}/../src/cluster.c")
    target_include_directories("${target}" PUBLIC "$<BUILD_INTERFACE:${EDGEBUILD_INCLUDE}>")
  endif()
endfunction()

# What the options of models ask for besides their own files.
function(_edgebuild_link_support target)
  if(arg_MAP AND NOT "${arg_MAP}" STREQUAL "off")
    _edgebuild_describe_target(host) # for eb_dma.h
    target_include_directories("${target}" PRIVATE ${EDGEBUILD_INCLUDE})
  endif()
  if("${arg_BACKEND}" STREQUAL "cmsis-nn" AND arg_CMSIS_NN)
    _edgebuild_link_cmsis_nn("${target}" "${arg_CMSIS_NN}")
  endif()
endfunction()

# Programs that link the library put the weights and arena of ${base} into the memories that its plan chose. `chip` is
# that of the caller.
function(_edgebuild_link_places target base)
  cmake_path(GET base PARENT_PATH folder)
  # Not preprocessed: a project's `-include config.h` for C would bring declarations.
  _edgebuild_compile_as_assembler("${base}_weights.S" assembler)
  set_source_files_properties("${base}_weights.S" PROPERTIES OBJECT_DEPENDS "${base}_weights.bin")

  # A program with a linker script of its own says `INCLUDE <name>_memory.ld` there; one that has edgebuild_firmware, or
  # sets the property itself, gets the fragment on its command line. In all cases a new fragment means a new link.
  # (As an option: CMake writes link directories into the program, as a place of shared libraries.)
  target_link_options("${target}" INTERFACE "$<BUILD_INTERFACE:-L${folder}>")
  target_link_options("${target}" INTERFACE
    "$<BUILD_INTERFACE:$<$<BOOL:$<TARGET_PROPERTY:EDGEBUILD_LINK_FRAGMENTS>>:-Wl,-T,${base}_memory.ld>>")
  set_property(TARGET "${target}" APPEND PROPERTY INTERFACE_LINK_DEPENDS "$<BUILD_INTERFACE:${base}_memory.ld>")
  # Another script may leave sections to the linker, which says nothing of it. The property EDGEBUILD_LINK_CHECK, set to
  # OFF, is for partial links (-r) by lld, which would check those, too.
  if(NOT chip STREQUAL "host" AND CMAKE_C_COMPILER_ID MATCHES "^(GNU|Clang|AppleClang)$")
    target_link_libraries("${target}" INTERFACE
      "$<BUILD_INTERFACE:$<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:EDGEBUILD_LINK_CHECK>,OFF>>:${base}_check.ld>>")
    set_property(TARGET "${target}" APPEND PROPERTY INTERFACE_LINK_DEPENDS "$<BUILD_INTERFACE:${base}_check.ld>")
  endif()
endfunction()

# Links a model's library to CMSIS-NN: to the target cmsis-nn of its own CMakeLists.txt if the project has that, else to
# one that is made here of the library's folder.
function(_edgebuild_link_cmsis_nn target folder)
  if(TARGET cmsis-nn)
    target_link_libraries("${target}" PRIVATE cmsis-nn)
    return()
  endif()
  if(NOT TARGET edgebuild_cmsis_nn)
    cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    set(sources "")
    foreach(group IN ITEMS ConvolutionFunctions NNSupportFunctions TransposeFunctions)
      file(GLOB found CONFIGURE_DEPENDS "${folder}/Source/${group}/*.c")
      list(APPEND sources ${found})
    endforeach()
    list(FILTER sources EXCLUDE REGEX "_f(16|32)\\.c$")
    list(SORT sources)
    if(sources)
      add_library(edgebuild_cmsis_nn STATIC EXCLUDE_FROM_ALL ${sources})
      target_include_directories(edgebuild_cmsis_nn PUBLIC "${folder}/Include")
    else()
      add_library(edgebuild_cmsis_nn INTERFACE)
      target_include_directories(edgebuild_cmsis_nn INTERFACE "${folder}/Include")
    endif()
  endif()
  target_link_libraries("${target}" PRIVATE edgebuild_cmsis_nn)
endfunction()

# Rows in compile_commands.json that tell editors how to read the sources of a driver. Nothing builds this library.
function(_edgebuild_add_editor_commands target)
  set(editor "${target}_dialect")
  _edgebuild_describe_target(host)
  set(support "${EDGEBUILD_INCLUDE}")
  add_library("${editor}" OBJECT EXCLUDE_FROM_ALL ${ARGN})
  set_target_properties("${editor}" PROPERTIES FOLDER edgebuild UNITY_BUILD OFF)
  target_include_directories("${editor}" PRIVATE "${support}" "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
  target_compile_definitions(
    "${editor}" PRIVATE EDGEBUILD_SHORT_WORDS "$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>"
  )
  target_compile_options(
    "${editor}" PRIVATE "SHELL:-include \"${support}/edgebuild_bf.h\"" "$<TARGET_PROPERTY:${target},COMPILE_OPTIONS>"
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-c++11-narrowing>
  )
  if("cxx_std_17" IN_LIST CMAKE_CXX_COMPILE_FEATURES)
    target_compile_features("${editor}" PRIVATE cxx_std_17)
  endif()
endfunction()

# The rule that makes the files of one driver. What it includes is known from the depfile.
function(_edgebuild_add_driver_rule target name)
  _edgebuild_check_name("${target}" "edgebuild driver '${name}' of ${target}" "${name}")
  set(sources "")
  set(folders "")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    get_source_file_property(generated "${source}" GENERATED)
    if(NOT EXISTS "${source}" AND NOT generated)
      _edgebuild_fail("edgebuild driver '${name}' of ${target}: no such file: ${source}")
    endif()
    cmake_path(GET source PARENT_PATH parent)
    list(APPEND sources "${source}")
    list(APPEND folders "${parent}")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/edgebuild/${name}")
  set(base "${folder}/${name}")
  _edgebuild_write_request("${folder}" driver "${name}" ${sources})
  get_property(products GLOBAL PROPERTY EDGEBUILD_DRIVER_SUFFIXES)
  set(language C)
  if(sources MATCHES "\\.(cpp|cc|cxx)(;|$)")
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if(NOT "CXX" IN_LIST languages)
      _edgebuild_fail("${target}: a driver in C++; write project(... LANGUAGES C CXX) or enable_language(CXX)")
    endif()
    set(language CXX)
    list(TRANSFORM products REPLACE "^\\.c$" ".cpp")
    set_target_properties("${target}" PROPERTIES LINKER_LANGUAGE CXX)
    target_compile_features("${target}" PRIVATE cxx_std_17)
  endif()
  list(APPEND products .lines)
  list(TRANSFORM products PREPEND "${base}")
  set(flags "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/edgebuild/${name}.flags")
  set(read "${sources}")
  if("${arg_LAYOUT}" MATCHES "^fixed:(.+)$") # the overlay of a register description, which may come and go
    set(overlay "${CMAKE_MATCH_1}")
    cmake_path(ABSOLUTE_PATH overlay BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    cmake_path(REPLACE_EXTENSION overlay LAST_ONLY ".overlay.yaml")
    string(REGEX REPLACE "([][*?])" "[\\1]" overlay "${overlay}")
    file(GLOB overlay CONFIGURE_DEPENDS "${overlay}")
    set(beside "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/edgebuild/${name}.beside") # is new whenever it does
    file(GENERATE OUTPUT "${beside}" CONTENT "${overlay}\n")
    list(APPEND read ${overlay} "${beside}")
  endif()
  _edgebuild_add_command("${target}" "${base}" "${read}" "${flags}.${language}" ${products})
  set_property(TARGET "${target}" APPEND PROPERTY PUBLIC_HEADER "${base}_regs.h" "${base}_hal.h")
  # What the sources are read with, since the generated code keeps their lines.
  target_include_directories("${target}" PRIVATE ${folders} ${arg_INCLUDE_DIRS})
  string(REPLACE "," ";" defines "${arg_DEFINES}")
  target_compile_definitions("${target}" PRIVATE ${defines})
  foreach(file IN LISTS arg_FORCE_INCLUDE)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    target_compile_options("${target}" PRIVATE "SHELL:-include \"${file}\"")
  endforeach()
  if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang") # #line has macros for the sources; this file says where they are
    set(code "${products}")
    list(FILTER code INCLUDE REGEX "\\.(c|cpp)$")
    set_source_files_properties(${code} PROPERTIES COMPILE_OPTIONS "@${base}.lines" OBJECT_DEPENDS "${base}.lines")
  endif()
  if(DEFINED arg_FOR)
    target_include_directories("${target}" PRIVATE "$<TARGET_PROPERTY:${arg_FOR},INCLUDE_DIRECTORIES>")
    target_compile_definitions("${target}" PRIVATE "$<TARGET_PROPERTY:${arg_FOR},COMPILE_DEFINITIONS>")
  endif()
  if(CMAKE_EXPORT_COMPILE_COMMANDS)
    _edgebuild_add_editor_commands("${target}" ${sources})
  endif()
  set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
  set(definitions "$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>")
  set(options "$<TARGET_PROPERTY:${target},COMPILE_OPTIONS>") # -include, -imacros
  set(first "") # of several configurations, since there is one driver
  set(configuration "${CMAKE_BUILD_TYPE}")
  if(CMAKE_CONFIGURATION_TYPES)
    list(GET CMAKE_CONFIGURATION_TYPES 0 configuration)
    set(first CONDITION "$<CONFIG:${configuration}>")
  endif()
  string(TOUPPER "${configuration}" configuration)
  set(global "")
  foreach(language IN ITEMS C CXX) # Release defines NDEBUG here
    set(words "${CMAKE_${language}_FLAGS} ${CMAKE_${language}_FLAGS_${configuration}}")
    string(REPLACE ">" "$<ANGLE-R>" words "${words}")
    string(APPEND global "$<$<COMPILE_LANGUAGE:${language}>:SHELL:${words}\n>")
  endforeach()
  # One for each language of the project: $<COMPILE_LANGUAGE:...> may stand in definitions and folders.
  file(GENERATE OUTPUT "${flags}.$<COMPILE_LANGUAGE>" CONTENT
    "$<$<BOOL:${includes}>:-I$<JOIN:${includes},\n-I>\n>$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},\n-D>\n>\
${global}$<$<BOOL:${options}>:$<JOIN:${options},\n>\n>"
    ${first} TARGET "${target}")
endfunction()

# Lets the target `codegen` make a stamp of the library `target`, and compile nothing, where CMake has no such target.
function(_edgebuild_add_to_codegen target name stamp)
  get_property(codegen GLOBAL PROPERTY EDGEBUILD_CODEGEN)
  if(codegen STREQUAL "NEW")
    return()
  endif()
  if(CMAKE_GENERATOR MATCHES "Ninja") # it knows the rules of all folders: one target, at the end
    set_property(GLOBAL APPEND PROPERTY EDGEBUILD_STAMPS "${stamp}")
    _edgebuild_follow("${target}" codegen)
    return()
  endif()
  if(POLICY CMP0171)
    cmake_policy(SET CMP0171 OLD) # or the name is reserved
  endif()
  get_property(ours GLOBAL PROPERTY EDGEBUILD_OWN_CODEGEN)
  if(NOT ours AND NOT TARGET codegen)
    add_custom_target(codegen)
    set_property(GLOBAL PROPERTY EDGEBUILD_OWN_CODEGEN ON)
    set(ours ON)
  endif()
  if(ours) # else it is one of the project
    add_custom_target("${target}_${name}_codegen" DEPENDS "${stamp}")
    set_target_properties("${target}_${name}_codegen" PROPERTIES FOLDER edgebuild)
    _edgebuild_follow("${target}" "${target}_${name}_codegen")
    add_dependencies(codegen "${target}_${name}_codegen")
  endif()
endfunction()

# Lets the custom target `follower` wait for what the library `target` is told to wait for, such as generated headers. A
# rule of Ninja waits only for what all targets with that rule wait for.
function(_edgebuild_follow target follower)
  get_property(pairs GLOBAL PROPERTY EDGEBUILD_FOLLOWERS)
  if(NOT pairs)
    cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [==[${CMAKE_SOURCE_DIR}]==] CALL _edgebuild_add_followers)")
  endif()
  set_property(GLOBAL APPEND PROPERTY EDGEBUILD_FOLLOWERS "${target}" "${follower}")
endfunction()

function(_edgebuild_add_followers)
  if(POLICY CMP0171)
    cmake_policy(SET CMP0171 OLD)
  endif()
  get_property(stamps GLOBAL PROPERTY EDGEBUILD_STAMPS)
  if(stamps AND NOT TARGET codegen)
    add_custom_target(codegen DEPENDS ${stamps})
  endif()
  get_property(pairs GLOBAL PROPERTY EDGEBUILD_FOLLOWERS)
  while(pairs)
    list(POP_FRONT pairs target follower)
    _edgebuild_linked_by(linked "${target}")
    foreach(library IN ITEMS "${target}" ${linked})
      get_target_property(added "${library}" MANUALLY_ADDED_DEPENDENCIES)
      if(added)
        add_dependencies("${follower}" ${added})
      endif()
    endforeach()
  endwhile()
endfunction()

# Sets `result` to the file that gets a new date where the code of a checkout has other bytes: one rule of the build looks at
# all files of it, before the rules of `target`. For an installed package it is empty; depfiles list what its installer
# wrote.
function(_edgebuild_code result target)
  set(${result} "" PARENT_SCOPE)
  get_property(here GLOBAL PROPERTY EDGEBUILD_CMAKE_DIR)
  get_property(python GLOBAL PROPERTY EDGEBUILD_PYTHON)
  file(GLOB records "${here}/../../../edgebuild-*.dist-info/RECORD")
  if(records)
    return()
  endif()
  set(folder "${CMAKE_BINARY_DIR}/CMakeFiles/edgebuild_code")
  if(NOT TARGET edgebuild_code)
    add_custom_command(
      OUTPUT "${folder}/code.stamp"
      BYPRODUCTS "${folder}/code.sha256"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}"
      COMMAND "${python}" -P -m edgebuild.build.code "${folder}/code.stamp"
      DEPFILE "${folder}/code.d"
      COMMENT "Looking at the code of edgebuild"
      VERBATIM)
    set_property(DIRECTORY APPEND PROPERTY ADDITIONAL_CLEAN_FILES "${folder}/code.d")
    add_custom_target(edgebuild_code DEPENDS "${folder}/code.stamp")
    set_target_properties(edgebuild_code PROPERTIES FOLDER edgebuild)
  endif()
  add_dependencies("${target}" edgebuild_code)
  set(${result} "${folder}/code.sha256" PARENT_SCOPE)
endfunction()

# The command that writes the header of a model, which needs no plan: programs compile while the model is planned. Sets
# `header` in the caller to its stamp.
function(_edgebuild_add_header target base model)
  cmake_path(GET base PARENT_PATH folder)
  cmake_path(GET base FILENAME name)
  set(request "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/edgebuild/${name}.req.json")
  set(header "${base}.header.stamp")
  set(products BYPRODUCTS "${base}.h")
  set(run run --header)
  if(CMAKE_GENERATOR MATCHES "Makefiles") # as for the other products
    set(products "")
    set(run run --header --makefiles)
    set_source_files_properties("${base}.h" PROPERTIES GENERATED ON)
    set_property(DIRECTORY APPEND PROPERTY ADDITIONAL_CLEAN_FILES "${base}.h")
  endif()
  set(codegen "")
  if(POLICY CMP0171)
    set(codegen CODEGEN)
  endif()
  set_property(DIRECTORY APPEND PROPERTY ADDITIONAL_CLEAN_FILES "${base}.header.d" "${header}")
  get_property(python GLOBAL PROPERTY EDGEBUILD_PYTHON)
  _edgebuild_code(code "${target}")
  add_custom_command(
    OUTPUT "${header}"
    ${products}
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}"
    COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${request}" "${folder}"
    COMMAND "${python}" -P -m edgebuild ${run} "--call=${CMAKE_CURRENT_LIST_FILE}:${target}" "${base}.req.json"
    DEPENDS "${model}" ${option_files} "${request}" ${code}
    DEPFILE "${base}.header.d"
    COMMENT "Writing ${name}.h"
    ${codegen}
    VERBATIM)
  target_sources("${target}" PRIVATE "${header}" "${base}.h")
  set(header "${header}" PARENT_SCOPE)
endfunction()

# The command that runs the request ${base}.req.json, which reads `sources` and what the depfile lists. Its products,
# ARGN, become sources of the library `target`. `flags`: a file with folders and definitions, or nothing.
function(_edgebuild_add_command target base sources flags)
  cmake_path(GET base PARENT_PATH folder)
  cmake_path(GET base FILENAME name)
  # Only CMake writes these, in a folder of its own: the rule brings them back when somebody has removed `folder`.
  set(request "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/edgebuild/${name}.req.json")
  set(copy_flags "")
  if(flags)
    set(copy_flags COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${flags}" "${base}.flags")
  endif()
  set(codegen "")
  if(POLICY CMP0171)
    set(codegen CODEGEN) # part of the target `codegen`, for whoever wants sources without compiling
  endif()
  set(console "")
  if(EDGEBUILD_PROGRESS)
    set(console USES_TERMINAL) # Ninja shows the output of other rules when they have ended
  endif()
  # Functions of two models may have one name. This holds in libraries of the project that name the sources, too.
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Makefiles would run a rule again for ever whose by-products keep their dates, and not at all where one is gone. So
  # there the products are inputs of the stamp: `run` lists them in the depfile, with dates that are no newer.
  set(products BYPRODUCTS ${ARGN})
  set(run run)
  set(forget "")
  if(CMAKE_GENERATOR MATCHES "Makefiles")
    set(products "")
    set(run run --makefiles)
    set_source_files_properties(${ARGN} PROPERTIES GENERATED ON)
    set_property(DIRECTORY APPEND PROPERTY ADDITIONAL_CLEAN_FILES ${ARGN})
    # CMake adds to what it has of a depfile. A header that is gone would be an input for ever.
    set(forget COMMAND "${CMAKE_COMMAND}" -E rm -f
      "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/compiler_depend.internal")
  endif()
  set_property(DIRECTORY APPEND PROPERTY ADDITIONAL_CLEAN_FILES
    "${base}.d" "${base}.stamp" "${base}.req.json" "${base}.flags")
  get_property(python GLOBAL PROPERTY EDGEBUILD_PYTHON)
  _edgebuild_code(code "${target}")
  add_custom_command(
    OUTPUT "${base}.stamp"
    ${products}
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}"
    COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${request}" "${folder}"
    ${copy_flags}
    ${forget}
    COMMAND "${python}" -P -m edgebuild ${run} "--call=${CMAKE_CURRENT_LIST_FILE}:${target}" "${base}.req.json"
    DEPENDS ${sources} ${option_files} "${request}" ${flags} ${header} ${code}
    DEPFILE "${base}.d"
    COMMENT "Generating ${name}"
    ${codegen}
    ${console}
    VERBATIM)
  set_property(TARGET "${target}" APPEND PROPERTY EDGEBUILD_REQUESTS "${base}.req.json")
  _edgebuild_add_to_codegen("${target}" "${name}" "${base}.stamp")
  target_sources("${target}" PRIVATE ${ARGN})
  if(header AND NOT TARGET "${target}_arena") # for programs that include <name>_arena.h
    add_library("${target}_arena" INTERFACE)
    target_link_libraries("${target}_arena" INTERFACE "${target}")
  endif()
  if(header AND CMAKE_GENERATOR MATCHES "Ninja" AND NOT "${arg_ARENA}" STREQUAL "caller")
    # Ninja finds the rule of each product by itself. With the stamp among the sources of the library, all that links it
    # would wait for the plan before it compiles anything.
    set(all ALL) # CMake's own `codegen` asks for that
    if(arg_EXCLUDE_FROM_ALL)
      set(all "")
    endif()
    add_custom_target("${target}_${name}_products" ${all} DEPENDS "${base}.stamp")
    set_target_properties("${target}_${name}_products" PROPERTIES FOLDER edgebuild)
    add_dependencies("${target}_arena" "${target}_${name}_products")
    _edgebuild_follow("${target}" "${target}_${name}_products")
  else()
    target_sources("${target}" PRIVATE "${base}.stamp")
  endif()
  target_include_directories("${target}" PUBLIC "$<BUILD_INTERFACE:${folder}>")
endfunction()

# With the C flags: those say what the processor is, where the ASM flags of a project often do not. Clang would warn of
# those that an assembler has no use for.
function(_edgebuild_compile_as_assembler file language)
  set_source_files_properties("${file}" PROPERTIES LANGUAGE C
    COMPILE_OPTIONS "-x;${language};-Wno-unused-command-line-argument")
endfunction()

# The same bytes as edgebuild.build.scons writes: sorted members, two spaces, paths relative to the folder of the request.
# ARGN: the source of a model, the sources of a driver, or nothing. Sets `option_files` in the caller to the files that
# options name, and `chip` to the target.
function(_edgebuild_write_request folder kind name)
  if(DEFINED arg_TARGET)
    set(chip "${arg_TARGET}")
  elseif(EDGEBUILD_TARGET)
    set(chip "${EDGEBUILD_TARGET}")
    if(chip MATCHES "\\.ya?ml$" AND NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${chip}")
      cmake_path(ABSOLUTE_PATH chip BASE_DIRECTORY "${CMAKE_SOURCE_DIR}") # that of -DEDGEBUILD_TARGET=board.yaml
    endif()
  elseif(CMAKE_CROSSCOMPILING)
    _edgebuild_fail("edgebuild ${kind} '${name}': this build is for ${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}, "
      "and no target is named; add TARGET <name or yaml> to the call, or set EDGEBUILD_TARGET; see `edgebuild targets`")
  else()
    set(chip host)
  endif()
  if(chip MATCHES "\\.ya?ml$")
    cmake_path(ABSOLUTE_PATH chip BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    file(RELATIVE_PATH chip "${folder}" "${chip}")
  endif()
  set(sources "")
  foreach(source IN LISTS ARGN)
    if("${source}${folder}" MATCHES "[|]") # Ninja has no escape for it, and CMake writes none for Make
      _edgebuild_fail("edgebuild ${kind} '${name}': no rule reads a path with '|': ${source}; rename the file or folder")
    endif()
    file(RELATIVE_PATH source "${folder}" "${source}")
    _edgebuild_json_string(source "${source}")
    list(APPEND sources "${source}")
  endforeach()
  if(kind MATCHES "^(driver|group)$")
    list(JOIN sources ",\n    " sources)
    set(sources "[\n    ${sources}\n  ]")
  elseif(kind STREQUAL "clock")
    set(sources "[]")
  endif()

  string(TOUPPER "${kind}" upper)
  get_property(options GLOBAL PROPERTY EDGEBUILD_${upper}_OPTIONS)
  get_property(with_file GLOBAL PROPERTY EDGEBUILD_FILE_OPTIONS)
  get_property(with_list GLOBAL PROPERTY EDGEBUILD_LIST_OPTIONS)
  set(given "")
  set(files "")
  foreach(option IN LISTS options)
    if(DEFINED arg_${option})
      string(TOLOWER "${option}" key)
      set(value "${arg_${option}}")
      if("${option}=${value}" MATCHES "^(${with_file})(.*)$")
        set(paths "${CMAKE_MATCH_2}")
        string(REGEX REPLACE "^[A-Z_]*=" "" prefix "${CMAKE_MATCH_1}")
        set(moved "")
        foreach(path IN LISTS paths)
          cmake_path(ABSOLUTE_PATH path BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
          if(NOT IS_DIRECTORY "${path}")
            get_source_file_property(generated "${path}" GENERATED)
            if(NOT EXISTS "${path}" AND NOT generated)
              _edgebuild_fail("edgebuild ${kind} '${name}' of ${target}: ${option}: no such file: ${path}")
            endif()
            list(APPEND files "${path}")
          endif()
          file(RELATIVE_PATH path "${folder}" "${path}")
          list(APPEND moved "${path}")
        endforeach()
        set(value "${prefix}${moved}")
      endif()
      foreach(list IN LISTS with_list)
        if(list MATCHES "^${option}=(.*)$")
          list(JOIN value "${CMAKE_MATCH_1}" value)
        endif()
      endforeach()
      _edgebuild_json_string(value "${value}")
      list(APPEND given "    \"${key}\": ${value}")
    endif()
  endforeach()
  if(given)
    list(JOIN given ",\n" given)
    set(given "{\n${given}\n  }")
  else()
    set(given "{}")
  endif()
  _edgebuild_json_string(quoted "${name}")
  _edgebuild_json_string(quoted_chip "${chip}")
  set(option_files "${files}" PARENT_SCOPE)
  set(chip "${chip}" PARENT_SCOPE)
  set(text "{
  \"kind\": \"${kind}\",
  \"name\": ${quoted},
  \"options\": ${given},
  \"output\": \".\",
  \"schema\": 1,
  \"source\": ${sources},
  \"target\": ${quoted_chip}
}
")
  # file(GENERATE) leaves a file alone whose bytes are right.
  file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/edgebuild/${name}.req.json" CONTENT "${text}")
  if(NOT text MATCHES "\\$<") # what generator expressions become is not known yet
    _edgebuild_json_string(file "${CMAKE_CURRENT_LIST_FILE}")
    _edgebuild_json_string(library "${target}")
    _edgebuild_json_string(place "${folder}")
    get_property(flags DIRECTORY PROPERTY COMPILE_OPTIONS)
    string(REPLACE ";" " " flags "${CMAKE_C_FLAGS} ${flags}")
    _edgebuild_json_string(flags "${flags}")
    _edgebuild_check_later(
      "{\"file\": ${file}, \"target\": ${library}, \"folder\": ${place}, \"flags\": ${flags}, \"request\": ${text}}\n")
  endif()
endfunction()

# Notes a row of JSON for the check at the end.
function(_edgebuild_check_later row)
  get_property(calls GLOBAL PROPERTY EDGEBUILD_CALLS)
  if(NOT calls)
    cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [==[${CMAKE_SOURCE_DIR}]==] CALL _edgebuild_check_requests)")
    set_property(GLOBAL PROPERTY EDGEBUILD_CALLS "[")
  else()
    set_property(GLOBAL APPEND_STRING PROPERTY EDGEBUILD_CALLS ",")
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY EDGEBUILD_CALLS "${row}")
endfunction()

# One process checks all requests of a project at the end of its configuration, with the messages and the table of options
# that builds have. Not where they are those of the last time.
function(_edgebuild_check_requests)
  get_property(calls GLOBAL PROPERTY EDGEBUILD_CALLS)
  get_property(python GLOBAL PROPERTY EDGEBUILD_PYTHON)
  set(file "${CMAKE_BINARY_DIR}/CMakeFiles/edgebuild.calls.json")
  set(before "")
  if(EXISTS "${file}")
    file(READ "${file}" before)
  endif()
  if(NOT "${calls}]\n" STREQUAL before)
    file(WRITE "${file}" "${calls}]\n")
    execute_process(COMMAND "${python}" -P -m edgebuild.build.check "${file}" RESULT_VARIABLE status ERROR_VARIABLE error)
    if(NOT status EQUAL 0)
      file(REMOVE "${file}")
      string(STRIP "${error}" error)
      message(NOTICE "${error}")
      message(FATAL_ERROR "edgebuild: calls are wrong; see above")
    endif()
  endif()
endfunction()

function(_edgebuild_json_string result text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n" text "${text}")
  string(REPLACE "\r" "\\r" text "${text}")
  string(REPLACE "\t" "\\t" text "${text}")
  set(${result} "\"${text}\"" PARENT_SCOPE)
endfunction()
