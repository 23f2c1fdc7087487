#include "eval/reproduce/task_times.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "methods/fluxion/schedule.h"

namespace tandem::eval {
namespace {

/// The tasks of one layer and step.
struct LayerTasks {
  Makespan times;
  std::uint64_t bytes = 0;
  Nanos begin = 0, end = 0;
};

/// The least time in which bytes can be read: at the CPU's rates, and over the link.
class Rates {
 public:
  explicit Rates(const HardwareProfile& hardware) : hardware_(hardware), link_(0) {
    for (const LinkPoint& point : hardware.link.h2d_curve) link_ = std::max(link_, point.gbps);
  }
  double select_ns(std::uint64_t bytes) const { return double(bytes) / on_cpu(hardware_.host.select_efficiency); }
  double attend_ns(std::uint64_t bytes) const { return double(bytes) / on_cpu(hardware_.host.attention_efficiency); }
  /// Of a task on the device, whose digests nobody has told apart from the rest.
  double either_ns(std::uint64_t bytes) const {
    return double(bytes) / on_cpu(std::max(hardware_.host.select_efficiency, hardware_.host.attention_efficiency));
  }
  double link_ns(std::uint64_t bytes) const { return double(bytes) / link_; }
  double memory_ns(std::uint64_t bytes) const { return double(bytes) / hardware_.host.dram_gbps; }

 private:
  double on_cpu(double efficiency) const { return hardware_.host.dram_gbps * efficiency; }
  const HardwareProfile& hardware_;
  double link_;  // GB/s, which are bytes per ns
};

}  // namespace

TaskTimes task_times(const Trace& trace, const HardwareProfile& hardware) {
  const Rates rates(hardware);
  const auto later = [](const StepMark& s) { return s.step != 0 && s.step != Device::kSetupStep; };
  const auto first = std::ranges::find_if(trace.steps, later);
  const auto steps = std::ranges::count_if(trace.steps, later);
  TaskTimes out;
  if (steps == 0) return out;
  double predict = 0;
  bool estimated = false;  // else what the host selects and attends are no tasks
  Nanos predicted = 0;     // until when the layer's estimate, its way and the choice are counted
  std::map<std::pair<std::size_t, std::uint32_t>, LayerTasks> layers;  // [step][layer]
  for (const TraceRecord& r : trace.records) {
    if (r.start < first->begin) continue;
    const std::string_view name = r.name;
    estimated |= name == "estimate heads";
    if (name == "estimate heads") predicted = r.start;
    if (name == "estimate heads" || name == "head estimates to host" || name == "choose tasks") {
      predict += double(std::max(r.end, predicted) - predicted);
      predicted = std::max(r.end, predicted);
    }
    const bool select = name == "select blocks", attend = name == "host attention",
               device = name == "attend over the link";
    if (!select && !attend && !device) continue;
    const auto step = std::upper_bound(trace.steps.begin(), trace.steps.end(), r.start,
                                       [](Nanos start, const StepMark& s) { return start < s.end; });
    LayerTasks& layer = layers[{static_cast<std::size_t>(step - trace.steps.begin()), r.layer}];
    if (layer.times.cpu.empty()) layer.begin = r.start;
    layer.begin = std::min(layer.begin, r.start);
    layer.end = std::max(layer.end, r.end);
    if (device) {
      layer.times.cpu.push_back(rates.either_ns(r.cost.h2d));
      layer.times.device.push_back(rates.link_ns(r.cost.h2d));
      layer.bytes += r.cost.h2d;
    } else if (select) {  // the host's selection and attention of a task follow each other
      layer.times.cpu.push_back(rates.select_ns(r.cost.dram));
      layer.times.device.push_back(rates.link_ns(r.cost.dram));
      layer.bytes += r.cost.dram;
    } else if (!layer.times.cpu.empty()) {
      layer.times.cpu.back() += rates.attend_ns(r.cost.dram);
      layer.times.device.back() += rates.link_ns(r.cost.dram);
      layer.bytes += r.cost.dram;
    }
  }
  if (!estimated) return out;
  double tasks = 0, bound = 0;
  for (const auto& [where, layer] : layers) {
    tasks += double(layer.end - layer.begin);
    bound += std::max(lower_bound(layer.times), rates.memory_ns(layer.bytes));
  }
  const double scale = 1e-6 / double(steps);
  return {predict * scale, tasks * scale, bound * scale};
}

}  // namespace tandem::eval
