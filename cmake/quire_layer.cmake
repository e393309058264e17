# quire_layer(PATH LINKS...): the folder src/PATH as library quire_PATH (with _ for /), and its
# *_test.cc files as one GoogleTest program PATH_test, registered with CTest case by case under the
# label `unit`. A folder below it that is a layer of its own comes first, and is left out.
function(quire_layer path)
  string(REPLACE "/" "_" name ${path})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${path}/*.cc
                                              ${CMAKE_SOURCE_DIR}/src/${path}/*.cu)
  get_property(inner GLOBAL PROPERTY quire_layers)
  foreach(folder IN LISTS inner)
    list(FILTER sources EXCLUDE REGEX "/src/${folder}/")
  endforeach()
  set_property(GLOBAL APPEND PROPERTY quire_layers ${path})
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(sources)
    add_library(quire_${name} STATIC ${sources})
    target_include_directories(quire_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(quire_${name} PUBLIC ${ARGN} PRIVATE quire_warnings)
  else()
    add_library(quire_${name} INTERFACE)
    target_include_directories(quire_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(quire_${name} INTERFACE ${ARGN})
  endif()
  if(tests AND QUIRE_TESTS)
    quire_test(${name}_test unit quire_${name} ${tests})
  endif()
endfunction()

# Every test program but those of the whole (labels sim, gpu): what `make test-asan` builds.
add_custom_target(part_tests)

# quire_test(NAME LABEL LIBRARIES;... SOURCES...): one GoogleTest program.
function(quire_test name label libraries)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ${libraries} quire_warnings GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             QUIRE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(label STREQUAL unit)
    # Compiled more often than it runs. The references of the ops are what runs long.
    target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS ${label} TIMEOUT 600)
  if(label MATCHES "^(unit|ops|golden)$")
    add_dependencies(part_tests ${name})
  endif()
endfunction()
