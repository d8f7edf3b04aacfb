# The house's build rules: one function per kind of target, the same warnings for all.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set_property(GLOBAL PROPERTY USE_FOLDERS ON)

find_program(CISTERN_CCACHE ccache)
if(CISTERN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CISTERN_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CISTERN_CCACHE})
endif()
find_program(CISTERN_MOLD mold)
find_program(CISTERN_LLD ld.lld)
if(CISTERN_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(CISTERN_LLD)
  add_link_options(-fuse-ld=lld)
endif()

set(CISTERN_WARNINGS -Wall -Wextra -Wshadow "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>" -Wimplicit-fallthrough)
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # It builds for fuzzing alone, and clang-tidy says what it has to say.
  list(APPEND CISTERN_WARNINGS -Werror)
endif()

function(_cistern_common target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>)
  target_compile_options(${target} PRIVATE ${CISTERN_WARNINGS})
endfunction()

# Sanitizers slow a test down by up to this; its time limit grows with it.
set(CISTERN_TEST_SLOWNESS 1)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  set(CISTERN_TEST_SLOWNESS 5)
endif()

# ThreadSanitizer: see tests/sanitize/absl_mutex_tsan.cc. GCC warns at every fence that TSan does not model; ours order
# memory between processes, where TSan sees nothing anyway.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
  list(APPEND CISTERN_WARNINGS -Wno-tsan)
  add_library(cistern_tsan_absl OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/tests/sanitize/absl_mutex_tsan.cc)
  target_link_libraries(cistern_tsan_absl PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
endif()
# What every binary gets, whatever it is for.
function(_cistern_binary target)
  _cistern_common(${target})
  if(TARGET cistern_tsan_absl)
    target_link_libraries(${target} PRIVATE cistern_tsan_absl)
  endif()
endfunction()

# cistern_headers(NAME FILE...): headers of a library; each must compile alone. One with a source of its name has that shown by
# every build, for the source includes it first (the lint sees to that); the others are checked as a target of their own.
function(cistern_headers name)
  set(own ${ARGN})
  set(lone "")
  foreach(header ${ARGN})
    string(REGEX REPLACE "\\.h$" ".cc" source "${header}")
    get_filename_component(source "${source}" ABSOLUTE)
    if(NOT EXISTS "${source}")
      list(APPEND lone "${header}")
      list(REMOVE_ITEM own "${header}")
    endif()
  endforeach()
  target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${lone}
                                FILE_SET own_source TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${own})
  set_target_properties(${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
endfunction()

# cistern_library(NAME SRCS ... HDRS ... DEPS ...)
function(cistern_library name)
  cmake_parse_arguments(A "" "" "SRCS;HDRS;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SRCS})
  cistern_headers(${name} ${A_HDRS})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
  _cistern_common(${name})
endfunction()

function(cistern_binary name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
  _cistern_binary(${name})
endfunction()

# What a host that serves or operates a cluster needs: `cmake --install build --component server`.
function(cistern_install_programs)
  install(TARGETS ${ARGN} COMPONENT server RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# Sources that run once a start (flags, commands that print): half of their compile time was optimising them.
function(cistern_cold_sources)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS
    "$<$<CONFIG:Release>:-O1;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-restrict>")
endfunction()

# A third of a build is tests, and half of a test's compile time its headers: those all share are compiled once, and what a test
# does itself (the libraries under it are as they are shipped) is not optimised for long.
function(_cistern_quick_compile name)
  # GCC 12 at -O1 takes the short strings of an initializer list for overflows, and a counting operator new for a
  # mismatch. With -pthread the shared headers do not fit, and are read as ever.
  set(quick -O1 -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict -Wno-mismatched-new-delete)
  target_compile_options(${name} PRIVATE "$<$<CONFIG:Release>:${quick}>")
  if(NOT TARGET cistern_test_headers)
    file(WRITE ${CMAKE_BINARY_DIR}/test_headers.cc "")
    add_library(cistern_test_headers STATIC ${CMAKE_BINARY_DIR}/test_headers.cc)
    target_link_libraries(cistern_test_headers PRIVATE cistern_core GTest::gmock)
    _cistern_common(cistern_test_headers)
    target_compile_options(cistern_test_headers PRIVATE $<$<CONFIG:Release>:-O1> -fPIE)
    target_precompile_headers(cistern_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <absl/status/statusor.h>
      <absl/container/flat_hash_map.h> <absl/strings/str_cat.h> <algorithm> <filesystem> <fstream> <functional> <map> <set> <string> <vector>)
  endif()
  set_target_properties(${name} PROPERTIES PCH_WARN_INVALID OFF)
  target_precompile_headers(${name} REUSE_FROM cistern_test_headers)
endfunction()

# cistern_test(NAME SRCS ... DEPS ... LABEL unit|sim|integration|fuzz|lint): one gtest binary, one ctest entry.
function(cistern_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(A "" "LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(NOT A_LABEL)
    set(A_LABEL unit)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  math(EXPR A_TIMEOUT "${A_TIMEOUT} * ${CISTERN_TEST_SLOWNESS}")
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gmock GTest::gtest_main)
  _cistern_binary(${name})
  _cistern_quick_compile(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${A_LABEL} TIMEOUT ${A_TIMEOUT})
  if(A_LABEL STREQUAL integration)  # Real processes with real deadlines: nothing else beside them.
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# cistern_benchmark(NAME SRCS ... DEPS ...): a Google Benchmark binary; never run as a test.
function(cistern_benchmark name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE ${A_DEPS} benchmark::benchmark benchmark::benchmark_main)
  _cistern_binary(${name})
endfunction()
