#include "engine/distributed/gpu_libraries.h"

#include <dlfcn.h>

#include "engine/common/error.h"

namespace tandem {
namespace {

class Library {
 public:
  Library(const std::string& file, const char* what) : file_(file), at_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (at_ == nullptr)
      throw_input_error(
          "Messages over NCCL need {}, which could not be loaded ({}). Install it, or put its folder into "
          "LD_LIBRARY_PATH.",
          what, dlerror());
  }
  template <class Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(at_, name));
    if (function == nullptr)
      throw_input_error("'{}' has no function {}: it is too old, or another library.", file_, name);
  }

 private:
  std::string file_;
  void* at_;
};

}  // namespace

GpuLibraries load_gpu_libraries(const std::string& driver, const std::string& nccl) {
  GpuLibraries it;
  const Library cuda(driver, "NVIDIA's driver (libcuda.so.1)");
  cuda.find(it.init, "cuInit");
  cuda.find(it.device_count, "cuDeviceGetCount");
  cuda.find(it.device_get, "cuDeviceGet");
  cuda.find(it.context_retain, "cuDevicePrimaryCtxRetain");
  cuda.find(it.context_release, "cuDevicePrimaryCtxRelease_v2");
  cuda.find(it.context_set, "cuCtxSetCurrent");
  cuda.find(it.stream_create, "cuStreamCreate");
  cuda.find(it.stream_destroy, "cuStreamDestroy_v2");
  cuda.find(it.stream_query, "cuStreamQuery");
  cuda.find(it.allocate, "cuMemAlloc_v2");
  cuda.find(it.free, "cuMemFree_v2");
  cuda.find(it.to_device, "cuMemcpyHtoDAsync_v2");
  cuda.find(it.to_host, "cuMemcpyDtoHAsync_v2");
  cuda.find(it.driver_error, "cuGetErrorString");
  const Library library(nccl, "NCCL 2 (libnccl.so.2)");
  library.find(it.comm_init_all, "ncclCommInitAll");
  library.find(it.comm_destroy, "ncclCommDestroy");
  library.find(it.comm_abort, "ncclCommAbort");
  library.find(it.comm_async_error, "ncclCommGetAsyncError");
  library.find(it.send, "ncclSend");
  library.find(it.receive, "ncclRecv");
  library.find(it.group_start, "ncclGroupStart");
  library.find(it.group_end, "ncclGroupEnd");
  library.find(it.nccl_error, "ncclGetErrorString");
  return it;
}

}  // namespace tandem
