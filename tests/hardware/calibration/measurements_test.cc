// Files that are no measurements: which file, which field.
#include "hardware/calibration/measurements.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/kernels/bench.h"
#include "tests/hardware/calibration/machine.h"

namespace tandem::hardware {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Measurements : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& text) const {
    const auto path = folder_.path() / "f.json";
    std::ofstream(path) << text;
    return path;
  }
  template <class Read>
  std::string refusal(Read read, const std::string& text) const {
    try {
      read(file(text));
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Measurements, WhatIsNoProbesReport) {
  ProbedMachine machine;
  machine.add("dram", "dram_read", "GB/s", 70, {{"threads", 16}});
  const json good = parse_json(probe::to_json(machine.report), "JSON");
  const auto with = [&](const std::string& pointer, const json& value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    return refusal(read_probe, json_text(changed));
  };
  EXPECT_EQ(refusal(read_probe, json_text(good)), "accepted");
  EXPECT_THAT(refusal(read_probe, "{"), HasSubstr("f.json"));
  EXPECT_THAT(refusal(read_probe, "{}"), HasSubstr("not what tandem-probe writes"));
  EXPECT_THAT(with("/program", "iperf"), HasSubstr("not what tandem-probe writes"));
  EXPECT_THAT(with("/schema_version", 2), HasSubstr("schema_version is 2"));
  EXPECT_THAT(with("/machine/cpu/threads_used", 0), AllOf(HasSubstr("machine.cpu"), HasSubstr("'threads_used'")));
  EXPECT_THAT(with("/sections/dram/figures/0/value", nullptr),
              AllOf(HasSubstr("section 'dram', figure 'dram_read'"), HasSubstr("'value'")));
  EXPECT_THAT(with("/sections/dram/figures", 3), HasSubstr("'figures'"));
  EXPECT_THAT(with("/sections", json::array()), HasSubstr("'sections'"));
  try {
    read_probe(folder_.path() / "none.json");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--probe"), HasSubstr("none.json")));
  }
}

TEST_F(Measurements, RunsOfOtherSectionsAreAdded) {
  const auto read = [&](const char* name, const ProbedMachine& machine) {
    std::ofstream(folder_.path() / name) << probe::to_json(machine.report);
    return read_probe(folder_.path() / name);
  };
  ProbedMachine one, two;
  one.add("dram", "dram_read", "GB/s", 70, {{"threads", 16}});
  two.add("launch", "launch_host", "us", 2, {{"what", "kernel"}});
  ProbeReport report = read("one.json", one);
  add_probe(report, read("two.json", two));
  EXPECT_NE(report.find("dram_read"), nullptr);
  EXPECT_NE(report.find("launch_host"), nullptr);
  EXPECT_THROW(add_probe(report, read("one.json", one)), InputError) << "twice the same figure";
  ProbeReport other = read("two.json", two);
  other.gpu = "another";
  ProbeReport first = read("one.json", one);
  EXPECT_THROW(add_probe(first, other), InputError);
}

TEST_F(Measurements, FiguresAreFoundByTheirConditions) {
  ProbedMachine machine;
  for (const int threads : {1, 2})
    machine.add("dram", "dram_read", "GB/s", threads, {{"threads", threads}, {"isa", "avx2"}});
  const ProbeReport report = machine.read();
  EXPECT_EQ(report.all("dram_read").size(), 2u);
  EXPECT_EQ(report.find("dram_read", {{"threads", 2}, {"isa", "avx2"}})->value, 2);
  EXPECT_EQ(report.find("dram_read", {{"threads", 3}}), nullptr);
  EXPECT_EQ(report.find("dram_read", {{"pattern", "random"}}), nullptr);
  EXPECT_EQ(report.find("cpu_attention"), nullptr);
}

// With the writer of `bench kernels`.
TEST_F(Measurements, KernelsAreReadAsTheyAreWritten) {
  eval::KernelBench bench;
  bench.machine = "a CPU, 3 threads";
  bench.threads = 3;
  bench.cases = 4;
  bench.rows.resize(4);
  bench.rows[0].kernel = bench.rows[1].kernel = bench.rows[2].kernel = "top_k";
  bench.rows[0].median_us = 10;
  bench.rows[0].bytes = 4e3;
  bench.rows[1].median_us = 30;
  bench.rows[1].bytes = 8e3;
  bench.rows[2].error = "It failed.";
  bench.rows[3].kernel = "top_k";
  bench.rows[3].median_us = 5;
  bench.rows[3].disturbed = "other processes used 1 of 2 CPUs";
  const KernelReport report = read_kernels(file(eval::kernel_bench_json(bench)));
  EXPECT_FALSE(report.cuda);
  EXPECT_EQ(report.threads, 3u);
  EXPECT_EQ(report.rows.size(), 3u);
  EXPECT_NEAR(report.gbps("top_k", 0), 12e3 / 40e-6 * 1e-9, 1e-12);
  EXPECT_NEAR(report.gbps("top_k", 5e3), 8e3 / 30e-6 * 1e-9, 1e-12);  // the other row fits a cache of as many bytes
  EXPECT_NEAR(report.gbps("top_k", 2e3), 8e3 / 30e-6 * 1e-9, 1e-12) << "four times the cache, the other is twice it";
  EXPECT_NEAR(report.gbps("top_k", 2.1e3), 12e3 / 40e-6 * 1e-9, 1e-12) << "neither is, so that both count";
  EXPECT_EQ(report.most_bytes("top_k"), 8e3);
  EXPECT_EQ(report.gbps("choose", 0), 0);
  bench.target = eval::KernelTarget::cuda;
  EXPECT_TRUE(read_kernels(file(eval::kernel_bench_json(bench))).cuda);
  EXPECT_THAT(refusal(read_kernels, R"({"device": "cpu"})"), HasSubstr("'measured_on' is missing"));
  EXPECT_THAT(refusal(read_kernels, R"({"device": "cpu", "measured_on": "x", "kernels": []})"), HasSubstr("'threads'"));
}

}  // namespace
}  // namespace tandem::hardware
