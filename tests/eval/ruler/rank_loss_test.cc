// A cache rank that is gone in the middle of a run: what was finished is kept, and the run goes on from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/common/error.h"
#include "engine/device/sim_device.h"
#include "engine/kernels/isa.h"
#include "engine/mechanisms/cache_rank/remote_rank.h"
#include "eval/ruler/ruler_dataset.h"
#include "eval/run/run_dataset.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::eval {
namespace {

/// Lets `lives` messages through, and is then at the end of its life.
class Mortal final : public Communicator {
 public:
  Mortal(std::unique_ptr<Communicator> link, int lives) : link_(std::move(link)), lives_(lives) {}
  void send(Message message) override { link_->send(std::move(message)); }
  Message receive() override { return link_->receive(); }
  Message await() override {
    if (lives_-- == 0) throw_run_error("Here it ends.");
    return link_->await();
  }
  void set_patience(std::chrono::milliseconds patience) override { link_->set_patience(patience); }
  int left() const { return lives_; }

 private:
  std::unique_ptr<Communicator> link_;
  int lives_;
};

/// A cache rank in a thread.
class MortalRank {
 public:
  explicit MortalRank(int lives) {
    CommunicatorPair pair = make_thread_pair("The inference rank", "The cache rank", {});
    near = std::move(pair.first);
    thread_ = std::thread([this, far = std::make_unique<Mortal>(std::move(pair.second), lives)]() mutable {
      ThreadPool pool(1);
      serve_cache_rank(*far, pool);
      left = far->left();
      far.reset();
    });
  }
  ~MortalRank() { end(); }
  MortalRank(const MortalRank&) = delete;
  MortalRank& operator=(const MortalRank&) = delete;
  void end() {
    near.reset();
    if (thread_.joinable()) thread_.join();
  }
  std::shared_ptr<Communicator> near;
  int left = 0;

 private:
  std::thread thread_;
};

class RankLoss : public ::testing::Test {
 protected:
  RankLoss()
      : model(load_model("embedded")),
        ruler(asked(), model),
        device(make_sim_device(load_profile("asyncspade-a100"))),
        pool(1) {
    options.methods = {"asyncspade:budget=64,place=peer"};
    options.engine.kv = {std::size_t{64} << 20, std::size_t{64} << 20};
    options.engine.precision = DType::bf16;
    manifest.command = "tandem compare";
    manifest.model = model.name;
    manifest.tokenizer_hash = model.tokenizer->hash();
    manifest.clock = device->clock_name();
    manifest.isa = to_string(active_isa());
    ruler.fill_manifest(options.methods, manifest);
  }
  void run(RunFolder& folder, MortalRank& rank) {
    options.engine.peer = rank.near;
    run_dataset(ruler, options, model, *device, pool, folder);
    options.engine.peer = nullptr;
  }
  std::string bytes(const char* run, const char* file) const { return testing::read_bytes(root.path() / run / file); }

  testing::TemporaryFolder root;
  static RulerOptions asked() {
    RulerOptions asked;
    asked.tasks = {"niah_single_1"};
    asked.lengths = {256};
    asked.samples = 4;
    return asked;
  }

  Model model;
  Ruler ruler;
  std::unique_ptr<Device> device;
  ThreadPool pool;
  DatasetRunOptions options;
  Manifest manifest;
};

TEST_F(RankLoss, FinishedSamplesAreKeptAndTheRunGoesOn) {
  constexpr int kMany = 1 << 20;
  int messages = 0;
  {
    MortalRank rank(kMany);
    RunFolder folder = RunFolder::create(root.path() / "whole", manifest);
    run(folder, rank);
    rank.end();
    messages = kMany - rank.left;
  }
  {
    MortalRank rank(messages / 2);
    RunFolder folder = RunFolder::create(root.path() / "cut", manifest);
    try {
      run(folder, rank);
      FAIL() << "the rank was gone";
    } catch (const RunError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("cache rank is gone"));
    }
    options.engine.peer = nullptr;
    EXPECT_GE(folder.finished().size(), 1u);
    EXPECT_LT(folder.finished().size(), 4u);
  }
  MortalRank rank(kMany);
  device = make_sim_device(load_profile("asyncspade-a100"));  // as the next process has it
  RunFolder folder = RunFolder::resume(root.path() / "cut", manifest);
  run(folder, rank);
  for (const char* file : {"samples.jsonl", "timings.jsonl"})
    EXPECT_EQ(bytes("cut", file), bytes("whole", file)) << file;
}

// The time left is counted from there.
TEST_F(RankLoss, ProgressBeginsWithAllThatWasThere) {
  MortalRank rank(1 << 20);
  std::vector<std::uint64_t> counted;
  options.progress = [&](std::uint64_t done, std::uint64_t) { counted.push_back(done); };
  {
    RunFolder folder = RunFolder::create(root.path() / "a", manifest);
    run(folder, rank);
  }
  EXPECT_EQ(counted, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  const std::string text = bytes("a", "samples.jsonl");
  testing::write_bytes(root.path() / "a" / "samples.jsonl", text.substr(0, text.rfind('\n', text.size() - 2) + 1));
  counted.clear();
  RunFolder folder = RunFolder::resume(root.path() / "a", manifest);
  run(folder, rank);
  EXPECT_EQ(counted, (std::vector<std::uint64_t>{3, 4}));
}

}  // namespace
}  // namespace tandem::eval
