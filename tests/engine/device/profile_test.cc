#include "engine/device/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <class Function>
std::string input_error(Function function) {
  try {
    function();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

nlohmann::json good() {
  return parse_json(profile_to_json(load_profile("fluxion-a100")), "JSON");
}

std::string error_of(const nlohmann::json& json) {
  return input_error([&] { parse_profile(json_text(json), "x", "x.json"); });
}

TEST(Profile, EveryShippedProfileLoadsAndSurvivesARoundTrip) {
  const std::vector<std::string> names = profile_names();
  for (const char* name : {"asyncspade-a100", "asyncspade-h100", "b200", "fluxion-a100", "gh200", "h100", "h200",
                           "hgca-a6000", "l40s", "rtx-4090", "rtx-5090", "rtx-pro-6000", "scoutattention-a100"}) {
    EXPECT_THAT(names, ::testing::Contains(name));
  }
  for (const std::string& name : names) {
    const HardwareProfile profile = load_profile(name);
    EXPECT_EQ(profile.name, name);
    const std::string text = profile_to_json(profile);
    EXPECT_EQ(profile_to_json(parse_profile(text, name, "round trip")), text);
  }
}

TEST(Profile, APeerIsOptionalAndThenWhole) {
  EXPECT_EQ(load_profile("fluxion-a100").peer.gbps, 0);
  EXPECT_EQ(load_profile("asyncspade-a100").peer.gbps, 250);
  EXPECT_EQ(load_profile("asyncspade-h100").peer.gbps, 350);
  nlohmann::json json = good();
  json["peer"] = {{"gbps", 100}};
  EXPECT_THAT(error_of(json), HasSubstr("'peer.latency_ns' is missing"));
  json["peer"] = {{"gbps", 100}, {"latency_ns", 5}};
  EXPECT_THAT(error_of(json), HasSubstr("sources.peer.gbps"));
}

TEST(Profile, ACpuMayPlayTheDevice) {
  nlohmann::json json = good();
  json["device"]["cpu_threads"] = 1;
  EXPECT_THAT(error_of(json), HasSubstr("sources.device.cpu_threads"));
  json["sources"]["device.cpu_threads"] = "assumed: a test";
  const HardwareProfile profile = parse_profile(json_text(json), "x", "x.json");
  EXPECT_EQ(profile.device.cpu_threads, 1u);
  EXPECT_EQ(parse_json(profile_to_json(profile), "JSON")["device"], json["device"]);
}

TEST(Profile, SomeFieldsAreOptional) {
  EXPECT_EQ(load_profile("fluxion-a100").device.layer_ns, 0);
  EXPECT_EQ(load_profile("fluxion-a100").host.select_efficiency, 1);
  nlohmann::json json = good();
  json["device"]["layer_ns"] = 800000;
  json["host"]["select_efficiency"] = 0.5;
  EXPECT_THAT(error_of(json), HasSubstr("sources.device.layer_ns"));
  json["sources"]["device.layer_ns"] = json["sources"]["host.select_efficiency"] = "assumed: a test";
  const HardwareProfile profile = parse_profile(json_text(json), "x", "x.json");
  EXPECT_EQ(profile.device.layer_ns, 800000);
  EXPECT_EQ(profile.host.select_efficiency, 0.5);
  EXPECT_EQ(parse_json(profile_to_json(profile), "JSON")["device"], json["device"]);
  EXPECT_EQ(parse_json(profile_to_json(profile), "JSON")["host"], json["host"]);
  json["host"]["select_efficiency"] = 1.5;
  EXPECT_THAT(error_of(json), HasSubstr("a share lies in (0, 1]"));
}

TEST(Profile, WhatAnEngineTakesBesideItsKernelsIsOptional) {
  nlohmann::json json = good();
  json.erase("ranges");
  for (const char* field : {"weights_efficiency", "product_ns", "attention_ns", "prefill_attention_tflops"}) {
    json["device"].erase(field);
    json["sources"].erase(std::string("device.") + field);
  }
  json["link"].erase("h2d_gather_curve");
  json["sources"].erase("link.h2d_gather_curve");
  const HardwareProfile without = parse_profile(json_text(json), "x", "x.json");
  EXPECT_EQ(without.device.weights_efficiency + without.device.prefill_attention_tflops, 0);
  EXPECT_EQ(without.device.product_ns + without.device.attention_ns, 0);
  EXPECT_TRUE(without.link.h2d_gather_curve.empty());
  EXPECT_EQ(without.link.transfer_ns + without.handoff.stream_ns + without.control.operation_ns, 0);
  json["device"]["weights_efficiency"] = 0.8;
  json["link"]["h2d_gather_curve"] = {{256, 20.0}, {4096, 40.0}};
  json["link"]["transfer_ns"] = 1500;
  json["handoff"]["stream_ns"] = 1600;
  json["control"]["operation_ns"] = 1700;
  for (const char* path : {"device.weights_efficiency", "link.h2d_gather_curve", "link.transfer_ns",
                           "handoff.stream_ns", "control.operation_ns"}) {
    EXPECT_THAT(error_of(json), HasSubstr("sources.")) << path;
    json["sources"][path] = "assumed: a test";
  }
  const HardwareProfile profile = parse_profile(json_text(json), "x", "x.json");
  EXPECT_EQ(profile.device.weights_efficiency, 0.8);
  EXPECT_EQ(profile.link.h2d_gather_curve.at(1).gbps, 40);
  EXPECT_EQ(profile.link.transfer_ns, 1500);
  EXPECT_EQ(profile.handoff.stream_ns, 1600);
  EXPECT_EQ(profile.control.operation_ns, 1700);
  const nlohmann::json again = parse_json(profile_to_json(profile), "JSON");
  for (const char* group : {"device", "link", "handoff", "control", "sources"}) EXPECT_EQ(again[group], json[group]);
}

TEST(Profile, NumbersInAnotherUnitAreRefused) {
  const auto error_with = [](const char* group, const char* field, double value) {
    nlohmann::json json = good();
    json[group][field] = value;
    return error_of(json);
  };
  EXPECT_THAT(error_with("device", "hbm_gbps", 3.35),
              HasSubstr("it must lie in 10 .. 100000, in 10^9 bytes per second"));
  EXPECT_THAT(error_with("device", "hbm_gbps", 3e6), HasSubstr("'device.hbm_gbps' is 3000000"));
  EXPECT_THAT(error_with("device", "gemm_tflops", 740000), HasSubstr("10^12 operations per second"));
  EXPECT_THAT(error_with("host", "dram_gbps", 56000), HasSubstr("'host.dram_gbps' is 56000"));
  EXPECT_THAT(error_with("device", "memory_gb", 8e10), HasSubstr("in 10^9 bytes"));
  nlohmann::json json = good();
  for (auto& point : json["link"]["h2d_curve"]) point[1] = point[1].get<double>() * 1000;
  EXPECT_THAT(error_of(json), HasSubstr("'link.h2d_curve' is "));
}

TEST(Profile, TheHostsMemoryIsOptional) {
  EXPECT_EQ(load_profile("h200").host.memory_gb, 0) << "not known";
  nlohmann::json json = good();
  EXPECT_EQ(json["host"]["memory_gb"], 220);
  json["host"]["memory_gb"] = 0;
  EXPECT_THAT(error_of(json), HasSubstr("'host.memory_gb' is 0; it must be greater than 0"));
  json["host"].erase("memory_gb");
  EXPECT_THAT(error_of(json), HasSubstr("sources.host.memory_gb"));
  json["sources"].erase("host.memory_gb");
  const HardwareProfile profile = parse_profile(json_text(json), "x", "x.json");
  EXPECT_EQ(profile.host.memory_gb, 0);
  EXPECT_EQ(parse_json(profile_to_json(profile), "JSON")["host"], json["host"]);
}

TEST(Profile, RatesOfContiguousAttentionAreOptionalEachForItself) {
  nlohmann::json pages = good();
  pages.erase("ranges");
  for (const std::string key : {"attention_contiguous_efficiency", "attention_contiguous_gbps_per_thread"}) {
    pages["host"].erase(key);
    pages["sources"].erase("host." + key);
  }
  const HardwareProfile without = parse_profile(json_text(pages), "x", "x.json");
  EXPECT_EQ(without.host.attention_contiguous_efficiency, 0);
  EXPECT_EQ(without.host.attention_contiguous_gbps_per_thread, 0);
  EXPECT_THAT(profile_to_json(without), Not(HasSubstr("contiguous")));
  for (const std::string key : {"attention_contiguous_efficiency", "attention_contiguous_gbps_per_thread"}) {
    nlohmann::json json = pages;
    json["host"][key] = 0.75;
    EXPECT_THAT(error_of(json), HasSubstr("sources.host." + key));
    json["sources"]["host." + key] = "assumed: a test";
    const HardwareProfile profile = parse_profile(json_text(json), "x", "x.json");
    EXPECT_EQ(profile.host.attention_contiguous_efficiency + profile.host.attention_contiguous_gbps_per_thread, 0.75);
    EXPECT_EQ(parse_json(profile_to_json(profile), "JSON")["host"], json["host"]);
    EXPECT_EQ(parse_json(profile_to_json(profile), "JSON")["sources"], json["sources"]);
    json["host"][key] = 0;
    EXPECT_THAT(error_of(json), AllOf(HasSubstr("x.json"), HasSubstr("host." + key), HasSubstr("greater than 0")));
    json["host"][key] = "fast";
    EXPECT_THAT(error_of(json), AllOf(HasSubstr("host." + key), HasSubstr("\"fast\"")));
  }
  nlohmann::json json = pages;
  json["host"]["attention_contiguous_efficiency"] = 1.2;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("host.attention_contiguous_efficiency"), HasSubstr("1.2"),
                                    HasSubstr("a share lies in (0, 1]")));
  json = pages;
  json["host"]["attention_contigous_efficiency"] = 0.7;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("host.attention_contigous_efficiency"), HasSubstr("is not known")));
}

TEST(Profile, PublishedNumbersOfTheTestbeds) {
  const HardwareProfile scout = load_profile("scoutattention-a100");
  EXPECT_EQ(scout.device.hbm_gbps, 1900);
  EXPECT_EQ(scout.host.threads, 36u);
  EXPECT_DOUBLE_EQ(scout.host.dram_gbps * scout.host.attention_efficiency, 100);
  const HardwareProfile fluxion = load_profile("fluxion-a100");
  EXPECT_EQ(fluxion.host.dram_gbps, 57);
  EXPECT_EQ(fluxion.host.threads, 20u);
  EXPECT_EQ(load_profile("hgca-a6000").device.memory_gb, 48);
}

TEST(Profile, UnknownNameSuggestsTheNearest) {
  const std::string error = input_error([] { load_profile("fluxion-a10"); });
  EXPECT_THAT(error, HasSubstr("fluxion-a10"));
  EXPECT_THAT(error, HasSubstr("Did you mean 'fluxion-a100'?"));
  EXPECT_THAT(input_error([] { load_profile("no/such/file.json"); }), HasSubstr("no/such/file.json"));
  EXPECT_THAT(input_error([] { load_profile("/"); }), HasSubstr("cannot be read"));
}

TEST(Profile, BadContentNamesFileFieldAndValue) {
  EXPECT_THAT(input_error([] { parse_profile("{", "x", "x.json"); }), HasSubstr("x.json"));
  EXPECT_THAT(input_error([] { parse_profile("[1]", "x", "x.json"); }), HasSubstr("array"));
  const std::string bomb = R"({"title": )" + std::string(400000, '[') + std::string(400000, ']') + "}";
  EXPECT_THAT(input_error([&] { parse_profile(bomb, "x", "x.json"); }),
              HasSubstr("x.json: its brackets are nested more than 32"));
  EXPECT_THAT(input_error([] { parse_profile(R"({"title": "a", "title": "b"})", "x", "x.json"); }),
              HasSubstr("x.json: the field 'title' occurs twice"));

  nlohmann::json json = good();
  json["device"].erase("hbm_gbps");
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("x.json"), HasSubstr("device.hbm_gbps"), HasSubstr("missing")));

  json = good();
  json["device"]["hbm_gbps"] = -3;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("device.hbm_gbps"), HasSubstr("-3")));
  json["device"]["hbm_gbps"] = 0;
  EXPECT_THAT(error_of(json), HasSubstr("greater than 0"));
  json["device"]["hbm_gbps"] = "fast";
  EXPECT_THAT(error_of(json), HasSubstr("\"fast\""));

  json = good();
  json["host"]["attention_efficiency"] = 1.5;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("host.attention_efficiency"), HasSubstr("1.5")));
  json = good();
  json["host"]["threads"] = 0;
  EXPECT_THAT(error_of(json), HasSubstr("host.threads"));
  json = good();
  json["device"]["launch_ns"] = 2.5;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("device.launch_ns"), HasSubstr("2.5")));
  json = good();
  json["control"]["submit_ns"] = -1;
  EXPECT_THAT(error_of(json), HasSubstr("control.submit_ns"));
  json = good();
  json["device"] = 7;
  EXPECT_THAT(error_of(json), HasSubstr("must be an object"));
}

TEST(Profile, PartsFillInWhatAProfileDoesNotSay) {
  nlohmann::json json = good();
  json["device"] = {{"of", "h200-sxm-141gb"}, {"launch_ns", 4321}};
  json["link"] = {{"of", "pcie5-x16"}};
  json["sources"]["device.launch_ns"] = "mine";
  for (const char* field : {"device.hbm_gbps", "link.h2d_curve"}) json["sources"].erase(field);
  const HardwareProfile profile = parse_profile(json_text(json), "mine", "mine.json");
  EXPECT_EQ(profile.device.hbm_gbps, 4800);
  EXPECT_EQ(profile.device.launch_ns, 4321);
  EXPECT_EQ(profile.sources.at("device.launch_ns"), "mine");
  EXPECT_THAT(profile.sources.at("device.hbm_gbps"), HasSubstr("datasheet"));
  EXPECT_GT(profile.link.h2d_curve.size(), 2u);
  json["device"]["of"] = "h200-sxm";
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("field 'device.of' is 'h200-sxm'"), HasSubstr("a100-pcie-80gb")));
  json["device"]["of"] = 3;
  EXPECT_THAT(error_of(json), HasSubstr("must be a text"));
}

TEST(Profile, EveryDeviceMakesAMachine) {
  for (const DeviceFacts& device : device_facts()) {
    const HardwareProfile profile = profile_of_device(device.name);
    EXPECT_GT(profile.device.attention_ns, 0) << device.name;
    EXPECT_GT(device.l2_mb, 0) << device.name;
    EXPECT_FALSE(device.hardware.empty()) << device.name;
  }
}

TEST(Profile, EveryNumberThatNobodyMeasuredHasARange) {
  std::vector<HardwareProfile> profiles;
  for (const std::string& name : profile_names()) profiles.push_back(load_profile(name));
  for (const DeviceFacts& device : device_facts()) profiles.push_back(profile_of_device(device.name));
  for (const HardwareProfile& profile : profiles) {
    for (const auto& [field, source] : profile.sources) {
      const bool known = !source.starts_with("assumed") && !source.starts_with("derived") &&
                         !source.starts_with("calibrated") && !source.starts_with("fitted");
      EXPECT_TRUE(known || profile.ranges.contains(field)) << profile.name << ": " << field << ": " << source;
    }
  }
}

TEST(Profile, ARangeHoldsItsNumber) {
  nlohmann::json json = good();
  const auto with_range = [&](const nlohmann::json& range) {
    json["ranges"] = {{"host.dram_gbps", range}};
    return error_of(json);
  };
  json["host"]["dram_gbps"] = 57;
  EXPECT_EQ(with_range({{"low", 40}, {"high", 60}, {"why", "a guess"}}), "no InputError");
  EXPECT_THAT(with_range({{"low", 58}, {"high", 60}, {"why", "a guess"}}), HasSubstr("is 58 to 60"));
  EXPECT_THAT(with_range({{"low", 40}, {"high", 56}, {"why", "a guess"}}), HasSubstr("between the two"));
  EXPECT_THAT(with_range({{"low", 40}, {"high", 60}}), HasSubstr("'ranges.host.dram_gbps.why' is missing"));
  EXPECT_THAT(with_range({{"low", "40"}, {"high", 60}, {"why", "a guess"}}), HasSubstr("must be a number"));
  EXPECT_THAT(with_range(40), HasSubstr("must be an object"));
  json["ranges"] = {{"host.dram", {{"low", 40}, {"high", 60}, {"why", "a guess"}}}};
  EXPECT_THAT(error_of(json), HasSubstr("ranges.host.dram"));
}

TEST(Profile, OneFieldChangesAlone) {
  const HardwareProfile profile = load_profile("fluxion-a100");
  HardwareProfile other = with_field(profile, "handoff.device_to_host_ns", 2500.4);
  EXPECT_EQ(other.handoff.device_to_host_ns, 2500);
  other.handoff.device_to_host_ns = profile.handoff.device_to_host_ns;
  EXPECT_EQ(profile_to_json(other), profile_to_json(profile));
  const HardwareProfile slower = with_field(profile, "link.h2d_curve", 0.5);
  for (std::size_t i = 0; i < profile.link.h2d_curve.size(); ++i)
    EXPECT_EQ(slower.link.h2d_curve[i].gbps, profile.link.h2d_curve[i].gbps / 2);
  EXPECT_THROW(with_field(profile, "host.dram", 1), LogicError);
}

TEST(Profile, LinkCurvesAreCheckedPointByPoint) {
  nlohmann::json json = good();
  json["link"]["h2d_curve"] = parse_json("[[4096, 2], [1024, 3]]", "JSON");
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("link.h2d_curve"), HasSubstr("not sorted")));
  json["link"]["h2d_curve"] = parse_json("[[1024, 1], [2048, 3]]", "JSON");  // a driver that takes another way
  EXPECT_EQ(error_of(json), "no InputError");
  json["link"]["h2d_curve"] = parse_json("[]", "JSON");
  EXPECT_THAT(error_of(json), HasSubstr("link.h2d_curve"));
  json["link"]["h2d_curve"] = parse_json("[[4096]]", "JSON");
  EXPECT_THAT(error_of(json), HasSubstr("[4096]"));
  json["link"]["h2d_curve"] = parse_json("[[0, 1]]", "JSON");
  EXPECT_THAT(error_of(json), HasSubstr("0 bytes"));
}

TEST(Profile, UnknownFieldsAndMissingSourcesAreRefused) {
  nlohmann::json json = good();
  json["device"]["hbm_gpbs"] = 1;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("device.hbm_gpbs"), HasSubstr("Did you mean 'hbm_gbps'?")));
  json = good();
  json["sources"].erase("host.dram_gbps");
  EXPECT_THAT(error_of(json), HasSubstr("sources.host.dram_gbps"));
  json = good();
  json["sources"]["host.dram_gbps"] = "";
  EXPECT_THAT(error_of(json), HasSubstr("sources.host.dram_gbps"));
}

}  // namespace
}  // namespace tandem
