// What the probe needs of the CUDA driver's header, for builds in which its GPU is an emulated one. Names are CUDA's.
#pragma once

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
#define CUDAAPI

struct CUstream_st;
typedef CUstream_st* CUstream;
typedef unsigned long long CUdeviceptr;
typedef std::uint32_t cuuint32_t;

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NOT_SUPPORTED = 801 };

constexpr unsigned CU_STREAM_WAIT_VALUE_GEQ = 0, CU_STREAM_WRITE_VALUE_DEFAULT = 0;
// NOLINTEND(readability-identifier-naming)
