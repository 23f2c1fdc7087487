// What was measured and checked, as tables and as JSON.
#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/kernels/bench.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

/// `json` with the rows of a run behind what it has, and what is missing of one that was interrupted, lost its device
/// or goes on. `add` puts a row that has no error into its object.
std::string run_json(Json json, const auto& run, const auto& add) {
  if (!run.stopped.empty()) json["stopped"] = run.stopped;
  if (run.rows.size() < run.cases) json["unfinished"] = fmt::format("{} of {} cases", run.rows.size(), run.cases);
  json["kernels"] = Json::array();
  for (const auto& one : run.rows) {
    Json& row = json["kernels"].emplace_back(Json{{"kernel", one.kernel}, {"shape", one.shape}});
    if (one.error.empty()) {
      add(row, one);
    } else {
      row["error"] = one.error;
    }
  }
  return json_text(json, 2) + "\n";
}
std::string unfinished_text(const auto& run) {
  const std::string stopped = run.stopped.empty() ? "" : "\n" + run.stopped + "\n";
  if (run.rows.size() == run.cases) return stopped;
  return stopped + fmt::format("\nUnfinished: {} of {} cases.\n", run.rows.size(), run.cases);
}

}  // namespace

std::string kernel_bench_text(const KernelBench& bench) {
  std::string text = fmt::format("measured on {}\n\n", bench.machine);
  text += fmt::format("{:<20} {:<48} {:>10} {:>10} {:>10} {:>8} {:>9} {:>6}\n", "kernel", "shape", "us", "least",
                      "most", "GB/s", "GFLOP/s", "share");
  for (const KernelTime& time : bench.rows) {
    if (!time.error.empty()) {
      text += fmt::format("{:<20} {:<48} not measured: {}\n", time.kernel, time.shape, time.error);
      continue;
    }
    const auto rate = [&](double amount) {
      return amount > 0 ? fmt::format("{:.4g}", amount / time.median_us * 1e-3) : std::string();
    };
    text += fmt::format("{:<20} {:<48} {:>10.2f} {:>10.2f} {:>10.2f} {:>8} {:>9} {:>6}{}\n", time.kernel, time.shape,
                        time.median_us, time.least_us, time.most_us, rate(time.bytes), rate(time.flops),
                        time.share >= 0 ? fmt::format("{:.2f}", time.share) : std::string(),
                        !time.disturbed.empty()  ? " *"
                        : !time.no_share.empty() ? " +"
                                                 : "");
  }
  text +=
      bench.target == KernelTarget::cpu
          ? "\nshare: of pure reads of memory by as many threads, in the same rounds; of multiply-adds in registers "
            "for\nmatrix kernels. What fits a cache can be above 1.\n"
          : "\nshare: of a copy within device memory (bytes read and written), in the same rounds; of a bf16 product "
            "of 8192 x 8192 x 8192\nfor matrix kernels; of a copy of 256 MiB between pinned and device memory, the "
            "same way, for what crosses the\nlink (gather, scatter_to_host, merge_from_host), the bytes that cross it "
            "counted once.\nWhat fits the cache can be above 1. A time of a few us is the rate at which the host "
            "starts kernels.\n";
  const auto says = [&](std::string KernelTime::*why) {
    return std::ranges::find_if(bench.rows, [why](const KernelTime& time) { return !(time.*why).empty(); });
  };
  const auto disturbed = says(&KernelTime::disturbed), without = says(&KernelTime::no_share);
  if (disturbed != bench.rows.end())
    text += fmt::format("*: a neighbour was busy ({}), so the times are too long and there is no share.\n",
                        disturbed->disturbed);
  if (without != bench.rows.end()) text += fmt::format("+: no share: {}\n", without->no_share);
  if (!bench.no_share.empty()) text += fmt::format("No shares: {}. Run it again on a quiet machine.\n", bench.no_share);
  text += unfinished_text(bench);
  return text;
}

std::string kernel_bench_json(const KernelBench& bench) {
  Json json = {{"device", to_string(bench.target)}, {"measured_on", bench.machine}};
  if (bench.target == KernelTarget::cpu) json["threads"] = bench.threads;
  if (!bench.no_share.empty()) json["no_share"] = bench.no_share;
  return run_json(std::move(json), bench, [](Json& row, const KernelTime& time) {
    row["us"] = time.median_us;
    row["least_us"] = time.least_us;
    row["most_us"] = time.most_us;
    row["bytes"] = time.bytes;
    row["flops"] = time.flops;
    if (time.share >= 0) row["share"] = time.share;
    if (!time.no_share.empty()) row["no_share"] = time.no_share;
    if (!time.disturbed.empty()) row["disturbed"] = time.disturbed;
  });
}

std::string kernel_check_text(const KernelChecks& checks) {
  std::string text;
  for (const KernelCheck& one : checks.rows)
    text += fmt::format("{:<20} {:<70} {}\n", one.kernel, one.shape,
                        !one.error.empty()  ? "not checked: " + one.error
                        : one.wrong.empty() ? "right"
                                            : one.wrong);
  return text + unfinished_text(checks);
}

std::string kernel_check_json(const KernelChecks& checks) {
  return run_json({{"device", to_string(checks.target)}, {"checked_on", checks.machine}}, checks,
                  [](Json& row, const KernelCheck& one) { row["wrong"] = one.wrong; });
}

}  // namespace tandem::eval
