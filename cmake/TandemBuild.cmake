# Compiler settings and the functions that folders use: tandem_library, tandem_test, tandem_python_test, tandem_bench.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Programs look for libraries in ../lib first, and so do the libraries they load: a copied folder of bin/ and lib/ runs
# anywhere (scripts/bundle.sh). Where there is no such folder the system's are found as always.
set(CMAKE_BUILD_RPATH "\$ORIGIN/../lib")
set(CMAKE_INSTALL_RPATH "\$ORIGIN/../lib")
# For programs that are installed. The path that a build has until then may end in an empty part, which is the current
# folder, where a stranger's files may lie.
function(tandem_final_rpath program)
  set_target_properties(${program} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()
add_link_options(-Wl,--disable-new-dtags)

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TANDEM_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TANDEM_CCACHE})
endif()

# Headers are most of what a file's compilation takes, so sixteen files of a target share one: the engine's and the
# commands' libraries take a sixth less time than with eight. What is local to a file needs a name of its own within the
# target. `scripts/lint.sh --each` parses files one by one, so it finds a missing #include.
set(CMAKE_UNITY_BUILD ${TANDEM_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

# -Wno-restrict: GCC 12 finds an overlap in every string that is assigned a literal (GCC bug 105651).
# -Wno-subobject-linkage: it is about headers, and takes every file of a unity build for one.
add_library(tandem_flags INTERFACE)
target_include_directories(tandem_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(tandem_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    -Wno-restrict $<$<BOOL:${TANDEM_UNITY}>:-Wno-subobject-linkage>>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TANDEM_WERROR}>>:-Werror>)
target_link_libraries(tandem_flags INTERFACE Threads::Threads fmt::fmt nlohmann_json::nlohmann_json)
# Paths in objects begin at the source folder, so that checkouts in other folders make the same objects: unity sources include
# absolute paths, which __FILE__ in every assertion of a test would keep apart in the compiler cache.
target_compile_options(tandem_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)

# Kernels ask for -O3 (engine/kernels). Elsewhere it costs more than it gains: `reproduce asyncspade-table2` takes 13.3 s of CPU time
# with it and 14.1 s with -O2 (medians of three in turns), `compare` at 1K 3.2 and 3.4 s (four), but a file of the command line
# compiles in 11.6 s, with -O2 in 9.1 s. With -O1 for that and for evaluations it would be 6.8 s, but the linker takes one copy of
# a template that several files have, and the first: theirs.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

if(TANDEM_SANITIZE)
  target_compile_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()

# What tests add. Their own code needs no -O3: two test files of Fluxion compile in 5.0 and 3.7 s of CPU time at -O1, in 4.3 and
# 3.3 s at -Og. Under sanitizers 7.7 and 5.3 s at -O1, 5.5 and 4.3 s at -Og, and 4.9 and 3.7 s where the test's own locals are not
# watched beyond their scope (the engine's are). A precompiled header of gtest and the standard library (172 MB to load) gained
# nothing there; -O0 loses: test_methods compiles in 60 s instead of 75 and runs 251 s instead of 188.
add_library(tandem_test_flags INTERFACE)
if(CMAKE_BUILD_TYPE STREQUAL Release OR TANDEM_SANITIZE)
  target_compile_options(tandem_test_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Og>)
endif()
if(TANDEM_SANITIZE MATCHES address)
  target_compile_options(tandem_test_flags INTERFACE -fno-sanitize-address-use-after-scope)
endif()
# Checks of every single memory access that find nothing here that the address sanitizer does not, and cost a fifth of the
# compile time (a file of the engine: 7.8 s -> 6.2 s of CPU time). Alignment stays on in what is tested.
if(TANDEM_SANITIZE MATCHES undefined)
  target_compile_options(tandem_flags INTERFACE -fno-sanitize=null,object-size,vptr,pointer-overflow)
  target_compile_options(tandem_test_flags INTERFACE -fno-sanitize=alignment)
endif()

# tandem_files(VARIABLE file-or-pattern ... [EXCEPT file-or-pattern ...]): file names, with those that match a pattern such as
# gate/*.cc in its place. CMake runs again where a file came or went.
function(tandem_files variable)
  cmake_parse_arguments(ARG "" "" "EXCEPT" ${ARGN})
  foreach(list IN ITEMS UNPARSED_ARGUMENTS EXCEPT)
    set(${list}_files "")
    foreach(entry IN LISTS ARG_${list})
      if(entry MATCHES "[*]")
        file(GLOB entry CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${entry})
      endif()
      list(APPEND ${list}_files ${entry})
    endforeach()
  endforeach()
  list(REMOVE_ITEM UNPARSED_ARGUMENTS_files ${EXCEPT_files})
  set(${variable} ${UNPARSED_ARGUMENTS_files} PARENT_SCOPE)
endfunction()

# tandem_library(name SOURCES gate/*.cc [EXCEPT gate/a.cc] [LINKS other libraries]): a static library named tandem_<name>.
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;EXCEPT;LINKS" ${ARGN})
  tandem_files(sources ${ARG_SOURCES} EXCEPT ${ARG_EXCEPT})
  add_library(tandem_${name} STATIC ${sources})
  target_link_libraries(tandem_${name} PUBLIC tandem_flags ${ARG_LINKS})
endfunction()

# tandem_test(name SOURCES gate/*_test.cc [EXCEPT ...] [LINKS ...] [ALONE] [EMULATED_GPU]): one GoogleTest binary test_<name>,
# each case known to ctest under the label <name>. ALONE: no other test runs beside it. EMULATED_GPU: all that it links
# has the streams and kernels of an emulated GPU (tests/engine/kernels/cuda_emulator).
function(tandem_test name)
  cmake_parse_arguments(ARG "ALONE;EMULATED_GPU" "" "SOURCES;EXCEPT;LINKS" ${ARGN})
  tandem_files(sources ${ARG_SOURCES} EXCEPT ${ARG_EXCEPT})
  add_executable(test_${name} ${sources})
  target_link_libraries(test_${name} PRIVATE tandem_flags ${ARG_LINKS} GTest::gtest GTest::gmock GTest::gtest_main
    tandem_test_flags)
  if(ARG_EMULATED_GPU)
    set_target_properties(test_${name} PROPERTIES TANDEM_EMULATED_GPU ON)
  endif()
  gtest_discover_tests(test_${name} DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 LABELS ${name} RUN_SERIAL ${ARG_ALONE})
endfunction()

# tandem_python_test(label.name file_test.py SECONDS [ARGUMENTS ...]): a test in Python that may take so long; it exits with 77
# where it lacks a package. test_<label> is there for scripts/test.sh --only <label>.
function(tandem_python_test name file seconds)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(NOT Python3_FOUND)
    return()
  endif()
  string(REGEX REPLACE "[.].*" "" label ${name})
  if(NOT TARGET test_${label})
    add_custom_target(test_${label})
  endif()
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${file} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds} LABELS ${label} SKIP_RETURN_CODE 77)
endfunction()

# tandem_bench(name SOURCES a_bench.cc [LINKS ...]): one Google Benchmark binary bench_<name>.
function(tandem_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(bench_${name} ${ARG_SOURCES})
  target_link_libraries(bench_${name} PRIVATE tandem_flags ${ARG_LINKS} benchmark::benchmark benchmark::benchmark_main)
endfunction()
