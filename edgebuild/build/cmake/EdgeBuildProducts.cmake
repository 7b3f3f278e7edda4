# cmake -DSTAMP=<file> -P EdgeBuildProducts.cmake -- <product>...: removes the stamp if a product is gone, so that make runs
# the rule that makes both.
foreach(index RANGE 5 ${CMAKE_ARGC})
  if(NOT "${CMAKE_ARGV${index}}" STREQUAL "" AND NOT EXISTS "${CMAKE_ARGV${index}}")
    file(REMOVE "${STAMP}")
  endif()
endforeach()
