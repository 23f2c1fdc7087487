// Our declarations against NCCL's and the driver's own headers, where those are installed.
#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <type_traits>

#include "engine/distributed/gpu_libraries.h"

namespace tandem {
namespace {

/// Whether two functions take and return the same to a compiler's binary interface: sizes and classes of everything.
template <class A, class B>
constexpr bool kAlike = sizeof(A) == sizeof(B) && (std::is_pointer_v<A> == std::is_pointer_v<B>);
template <class F, class G>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kAlike<R, S> && (kAlike<A, B> && ...)> {
};

TEST(NcclInterface, IsTheOneOfTheHeaders) {
  const GpuLibraries lib;  // only types are looked at
  EXPECT_TRUE((SameCall<decltype(lib.init), decltype(&cuInit)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.device_count), decltype(&cuDeviceGetCount)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.device_get), decltype(&cuDeviceGet)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.context_retain), decltype(&cuDevicePrimaryCtxRetain)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.context_release), decltype(&cuDevicePrimaryCtxRelease)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.context_set), decltype(&cuCtxSetCurrent)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.stream_create), decltype(&cuStreamCreate)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.stream_destroy), decltype(&cuStreamDestroy)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.stream_query), decltype(&cuStreamQuery)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.allocate), decltype(&cuMemAlloc)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.free), decltype(&cuMemFree)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.to_device), decltype(&cuMemcpyHtoDAsync)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.to_host), decltype(&cuMemcpyDtoHAsync)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.driver_error), decltype(&cuGetErrorString)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.comm_init_all), decltype(&ncclCommInitAll)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.comm_destroy), decltype(&ncclCommDestroy)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.comm_abort), decltype(&ncclCommAbort)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.comm_async_error), decltype(&ncclCommGetAsyncError)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.send), decltype(&ncclSend)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.receive), decltype(&ncclRecv)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.group_start), decltype(&ncclGroupStart)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.group_end), decltype(&ncclGroupEnd)>::value));
  EXPECT_TRUE((SameCall<decltype(lib.nccl_error), decltype(&ncclGetErrorString)>::value));
  EXPECT_EQ(kDriverNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(kNcclInProgress, ncclInProgress);
  EXPECT_EQ(kNcclUint8, ncclUint8);
}

}  // namespace
}  // namespace tandem
