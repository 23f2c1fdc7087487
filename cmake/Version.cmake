# tandem_version: engine/common/version.h, commit and hash renewed at every build.
find_program(TANDEM_GIT git)
set(commit_source ${CMAKE_BINARY_DIR}/generated/git_commit.cc)
string(REPLACE ";" "|" methods "${TANDEM_METHODS}")
set(commit_command ${CMAKE_COMMAND} -DGIT=${TANDEM_GIT} "-DMETHODS=${methods}" -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUTPUT=${commit_source}
  -P ${CMAKE_SOURCE_DIR}/cmake/GitCommit.cmake)
add_custom_target(tandem_git_commit COMMAND ${commit_command} BYPRODUCTS ${commit_source} COMMENT "Commit of this build" VERBATIM)

set(engine_source ${CMAKE_BINARY_DIR}/generated/engine_hash.cc)
string(TOUPPER "CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}" type_flags)
set(engine_command ${CMAKE_COMMAND} "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${${type_flags}} ${TANDEM_SANITIZE}"
  -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUTPUT=${engine_source} -P ${CMAKE_SOURCE_DIR}/cmake/EngineHash.cmake)
add_custom_target(tandem_engine_hash COMMAND ${engine_command} BYPRODUCTS ${engine_source} COMMENT "Hash of the engine's sources" VERBATIM)

tandem_library(version SOURCES ${CMAKE_SOURCE_DIR}/engine/common/version.cc ${commit_source} ${engine_source})
add_dependencies(tandem_version tandem_git_commit tandem_engine_hash)
string(REGEX REPLACE "^GNU$" "GCC" compiler_name "${CMAKE_CXX_COMPILER_ID}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/engine/common/version.cc PROPERTIES COMPILE_DEFINITIONS
  "TANDEM_BUILD_VERSION=\"${PROJECT_VERSION}\";TANDEM_BUILD_COMPILER=\"${compiler_name}\";TANDEM_BUILD_COMPILER_VERSION=\"${CMAKE_CXX_COMPILER_VERSION}\";TANDEM_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";TANDEM_BUILD_SANITIZERS=\"${TANDEM_SANITIZE}\";TANDEM_BUILD_CUDA=$<BOOL:${TANDEM_CUDA}>")
