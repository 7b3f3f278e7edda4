# cmake -DSTAMP=<file> -P EdgeBuildProducts.cmake -- <product>...: removes the stamp if a product is gone or a file that it
# was made from has other bytes, so that make runs the rule that makes both. Make itself sees newer dates only, and `cp -p`
# or an archive may put an older file in the place of the model. Line by line: a path may hold what a list of CMake cannot.
foreach(index RANGE 5 ${CMAKE_ARGC})
  if(NOT "${CMAKE_ARGV${index}}" STREQUAL "" AND NOT EXISTS "${CMAKE_ARGV${index}}")
    file(REMOVE "${STAMP}")
  endif()
endforeach()

# Sets `changed` for a line `sha256 mtime_ns size path` of the stamp; the bytes are read only where the date is another.
function(_edgebuild_compare digest date size path)
  foreach(index RANGE 5 ${CMAKE_ARGC})
    if("${CMAKE_ARGV${index}}" STREQUAL path) # a product that somebody edited stays until an input changes
      return()
    endif()
  endforeach()
  if(NOT EXISTS "${path}")
    set(changed TRUE PARENT_SCOPE) # the run says what is missing
    return()
  endif()
  file(SIZE "${path}" found)
  if(found EQUAL size)
    file(TIMESTAMP "${path}" found "%s" UTC)
    if("${date}" MATCHES "^${found}.........$") # nanoseconds
      return()
    endif()
    file(SHA256 "${path}" found)
    if(found STREQUAL digest)
      return()
    endif()
  endif()
  set(changed TRUE PARENT_SCOPE)
endfunction()

if(EXISTS "${STAMP}")
  file(READ "${STAMP}" text)
  while("${text}" MATCHES "^([^\n]*)\n")
    set(line "${CMAKE_MATCH_1}")
    string(LENGTH "${CMAKE_MATCH_0}" length)
    string(SUBSTRING "${text}" ${length} -1 text)
    if("${line}" MATCHES "^([0-9a-f]+) ([0-9]+) ([0-9]+) (.+)$")
      _edgebuild_compare("${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}" "${CMAKE_MATCH_3}" "${CMAKE_MATCH_4}")
    elseif("${line}" MATCHES "^- 0 0 (.+)$" AND EXISTS "${CMAKE_MATCH_1}")
      set(changed TRUE) # a file that would have been read
    endif()
  endwhile()
  if(changed)
    file(REMOVE "${STAMP}")
  endif()
endif()
