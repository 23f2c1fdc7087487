// Which build this is, for `tandem info` and for the manifest of every run.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

/// "0.1.0", from CMakeLists.txt.
std::string_view version();

/// First 12 digits of the commit the program was built from, with "+changes" where tracked files differed from it;
/// "unknown" outside a git checkout or without git.
std::string_view git_commit();

/// 16 hexadecimal digits over engine/'s sources and build files, cmake/TandemBuild.cmake and the compiler with its
/// options: programs with the same ones compute the same of the same prompt.
std::string_view engine_hash();

/// "GCC 12.2.0, Release": compiler, build type and sanitizers.
std::string build_description();

/// Whether the CUDA parts were compiled in.
bool built_with_cuda();

}  // namespace tandem
