// What the control thread and the device pay for starting work: kernels one by one, and CUDA graphs of small kernels.
#include <algorithm>

#include "hardware/probe/cuda_common.h"
#include "hardware/probe/device.cuh"

namespace tandem::probe {
namespace {

__global__ void add_one(unsigned* counter) {
  *counter += 1;
}

/// A captured graph of `nodes` kernels in a row.
class Graph {
 public:
  Graph(const Stream& stream, unsigned* counter, int nodes) {
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a capture");
    for (int i = 0; i < nodes; ++i) launch("capturing a kernel", add_one, 1, 1, stream, counter);
    cuda_check(cudaStreamEndCapture(stream, &graph_), "ending a capture");
    cuda_check(cudaGraphInstantiate(&exec_, graph_, 0), "instantiating a graph");
    cuda_check(cudaGraphUpload(exec_, stream), "uploading a graph");
  }
  ~Graph() {
    if (device_stuck()) return;
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay(const Stream& stream) const { cuda_check(cudaGraphLaunch(exec_, stream), "launching a graph"); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

double microseconds(double seconds) {
  return seconds * 1e6;
}

}  // namespace

void run_launch(Recorder& recorder) {
  const Stream stream;
  EventPair events;
  const DeviceMemory counter(sizeof(unsigned));
  unsigned* const count = counter.as<unsigned>();
  unsigned expected = 0;
  cuda_check(cudaMemsetAsync(count, 0, sizeof(unsigned), stream), "clearing a counter");
  const auto kernel = [&] {
    launch("launching a kernel", add_one, 1, 1, stream, count);
    ++expected;
  };

  // Fewer launches than the queue holds (1024): the host's figure is then the cost of a call, not of a full queue.
  constexpr int kBurst = 500;
  recorder.figure(
      "launch_host", "us", {{"what", "kernel"}, {"burst", kBurst}},
      [&] {
        const auto start = Clock::now();
        for (int i = 0; i < kBurst; ++i) kernel();
        const double seconds = seconds_since(start);
        stream.drain("launching kernels");
        return seconds / kBurst;
      },
      microseconds);
  // Of the device alone: all are queued before the first begins.
  recorder.figure(
      "launch_back_to_back", "us", {{"what", "kernel"}, {"burst", kBurst}},
      [&] {
        return events.time(stream, [&] {
          for (int i = 0; i < kBurst; ++i) kernel();
        }) / kBurst;
      },
      microseconds);
  const auto synchronized = [&](const std::function<void()>& enqueue) {
    constexpr int kRounds = 50;
    const auto start = Clock::now();
    for (int i = 0; i < kRounds; ++i) {
      enqueue();
      cuda_check(cudaStreamSynchronize(stream), "waiting for a stream");
    }
    return seconds_since(start) / kRounds;
  };
  recorder.figure(
      "launch_sync", "us", {{"what", "kernel"}, {"wait", "cudaStreamSynchronize"}},
      [&] { return synchronized(kernel); }, microseconds);

  std::vector<std::pair<int, std::vector<double>>> replays;
  for (const int nodes : {1, 8, 32}) {
    const Graph graph(stream, count, nodes);
    const auto replay = [&] {
      graph.replay(stream);
      expected += static_cast<unsigned>(nodes);
    };
    const Fields conditions = {{"what", "graph"}, {"nodes", nodes}};
    const int replay_count = std::min(100, 800 / nodes);  // few enough to be queued at once
    recorder.figure(
        "launch_host", "us", conditions,
        [&] {
          const auto start = Clock::now();
          for (int i = 0; i < replay_count; ++i) replay();
          const double seconds = seconds_since(start);
          stream.drain("replaying graphs");
          return seconds / replay_count;
        },
        microseconds);
    auto samples = recorder.collect("launch_back_to_back (" + describe(conditions) + ")", [&] {
      return events.time(stream, [&] {
        for (int i = 0; i < replay_count; ++i) replay();
      }) / replay_count;
    });
    if (samples) {
      for (double& value : *samples) value *= 1e6;
      recorder.add("launch_back_to_back", "us", conditions, *samples);
      replays.emplace_back(nodes, *samples);
    }
    recorder.figure(
        "launch_sync", "us", conditions, [&] { return synchronized(replay); }, microseconds);
    stream.drain("replaying graphs");
  }
  // The slope between the smallest and the largest graph: what one more node costs.
  if (replays.size() >= 2) {
    const auto& [few, short_samples] = replays.front();
    const auto& [many, long_samples] = replays.back();
    const double base = summarize(short_samples).value;
    std::vector<double> per_node = long_samples;
    for (double& value : per_node) value = (value - base) / (many - few);
    recorder.add("graph_node", "us", {{"from_nodes", few}, {"to_nodes", many}}, per_node);
  }

  unsigned seen = 0;
  cuda_check(cudaMemcpyAsync(&seen, count, sizeof seen, cudaMemcpyDeviceToHost, stream), "reading a counter");
  stream.drain("reading a counter");
  if (seen != expected) {
    throw ProbeError("The kernels counted " + std::to_string(seen) + " launches where " + std::to_string(expected) +
                     " were made.");
  }
  recorder.checked("Every kernel launched, alone or in a graph, ran once: the device counted " + std::to_string(seen) +
                   ".");
}

}  // namespace tandem::probe
