#include "engine/device/cuda_handshake.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CudaHandshake, SucceedsWhereStreamsAndTheHostSeeEachOther) {
  check_cuda_handshake();
}

// Each way that a machine may lack, with the sentence that names it.
TEST(CudaHandshake, SaysWhatDoesNotArrive) {
  using cuda_emulator::Lack;
  const auto refusal = [](Lack lack, const char* words) {
    const cuda_emulator::Lacking lacking(lack);
    EXPECT_THAT([] { check_cuda_handshake(std::chrono::milliseconds(30)); },
                ThrowsMessage<InputError>(HasSubstr(words)));
  };
  refusal(Lack::writes, "a stream writes into pinned memory does not reach the host");
  refusal(Lack::waits, "a stream does not go on when the host writes");
  refusal(Lack::copies, "and back, is not the same");
  refusal(Lack::operations, "driver error 801");
  check_cuda_handshake();
}

}  // namespace
}  // namespace tandem
