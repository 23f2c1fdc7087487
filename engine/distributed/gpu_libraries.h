// The few functions of the CUDA driver and of NCCL that messages between two GPUs need, found when they are first asked
// for: a program that was built without CUDA has them where the machine has. Declared here after the libraries'
// documented binary interface; a test holds these lines against nccl.h and cuda.h where those are installed.
#pragma once

#include <cstddef>
#include <string>

namespace tandem {

using DriverStream = void*;
using DriverContext = void*;
using DriverPointer = unsigned long long;  // into a GPU's memory
using NcclComm = void*;

inline constexpr int kDriverNotReady = 600;  // of stream_query(): there is work left
inline constexpr int kNcclInProgress = 7, kNcclUint8 = 1;

/// Results: 0 is success.
struct GpuLibraries {
  int (*init)(unsigned flags) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*context_retain)(DriverContext* context, int device) = nullptr;  // the one that NCCL works in, too
  int (*context_release)(int device) = nullptr;
  int (*context_set)(DriverContext context) = nullptr;  // of the calling thread
  int (*stream_create)(DriverStream* stream, unsigned flags) = nullptr;
  int (*stream_destroy)(DriverStream stream) = nullptr;
  int (*stream_query)(DriverStream stream) = nullptr;
  int (*allocate)(DriverPointer* at, std::size_t bytes) = nullptr;
  int (*free)(DriverPointer at) = nullptr;
  int (*to_device)(DriverPointer to, const void* from, std::size_t bytes, DriverStream stream) = nullptr;
  int (*to_host)(void* to, DriverPointer from, std::size_t bytes, DriverStream stream) = nullptr;
  int (*driver_error)(int result, const char** text) = nullptr;

  int (*comm_init_all)(NcclComm* comms, int count, const int* devices) = nullptr;
  int (*comm_destroy)(NcclComm comm) = nullptr;
  int (*comm_abort)(NcclComm comm) = nullptr;
  int (*comm_async_error)(NcclComm comm, int* result) = nullptr;
  int (*send)(const void* from, std::size_t count, int type, int peer, NcclComm comm, DriverStream stream) = nullptr;
  int (*receive)(void* to, std::size_t count, int type, int peer, NcclComm comm, DriverStream stream) = nullptr;
  int (*group_start)() = nullptr;  // what the calling thread sends and receives up to group_end() begins together
  int (*group_end)() = nullptr;
  const char* (*nccl_error)(int result) = nullptr;
};

/// InputError where a library, or a function of it, is missing. They stay loaded for good.
GpuLibraries load_gpu_libraries(const std::string& driver = "libcuda.so.1", const std::string& nccl = "libnccl.so.2");

}  // namespace tandem
