// tandem plan as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PlanCommand, SaysWhatFitsAndWritesIt) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "plan.json").string();
  const cli::Outcome done = cli::run(
      "plan --as llama-3.1-70b --block 256 --link-gbps 32 --memory 192GB --context 128K "
      "--batch 1,8 --out " +
      file);
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, AllOf(HasSubstr("83886080"), HasSubstr("2.621 ms"),
                               HasSubstr("with 192 GB of device memory and a link of 32 GB/s"),
                               HasSubstr("Host memory is not known")));
  const auto json = parse_json(read_bytes(file), "JSON");
  const auto& machine = json.at("machines")[0];
  EXPECT_EQ(machine.at("batches").size(), 2u);
  EXPECT_EQ(machine.at("contexts")[0].at("requests_on_device"), 0);  // 41 GB beside 141 GB of weights
  EXPECT_EQ(cli::run("plan --contexts 8K").text, cli::run("plan --context 8K").text);
  for (const auto& [arguments, says] :
       {std::pair{"--hw a100", "Did you mean 'asyncspade-a100' or 'fluxion-a100' or 'scoutattention-a100'?"},
        std::pair{"--kv-bits 5", "--kv-bits is 5: give 16"}, std::pair{"--block 0", "--block is 0"},
        std::pair{"--step-ms 0", "--step-ms is 0"}, std::pair{"--link-gbps -1", "--link-gbps is -1"},
        std::pair{"--memory much", "'much' is not a size"}, std::pair{"--batch 1,1", "'1' is given twice"},
        std::pair{"--batch 01,1", "'1' is given twice"}, std::pair{"--link-gbps 1e-300", "from 0.001 to 10^6"},
        std::pair{"--host-memory much", "'much' is not a size"},
        std::pair{"--as llama-4", "There is no model shape 'llama-4'"},
        std::pair{"--hw h100,h200 --link-gbps 30", "change one machine, and --hw names 2"},
        std::pair{"--out /nowhere/x", "does not exist"}}) {
    const cli::Outcome outcome = cli::run(std::string("plan ") + arguments, cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr(says));
  }
}

TEST(PlanCommand, HostMemoryIsTheMachines) {
  const cli::Outcome profile = cli::run("plan --context 32K --batch 1");
  EXPECT_THAT(profile.text, HasSubstr("Room for KV in host memory: 209 GB."));  // 220 without 5 %
  const cli::Outcome given = cli::run("plan --memory 80GB --host-memory 100 --context 32K --batch 1");
  EXPECT_THAT(given.text, AllOf(HasSubstr("with 80 GB of device memory and 100 GB of host memory"),
                                HasSubstr("Room for KV in host memory: 95.00 GB.")));
}

TEST(PlanCommand, SeveralMachinesAreSideBySide) {
  const cli::Outcome done = cli::run("plan --as llama-3.1-70b --hw h200,all --context 32K --batch 8");
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text,
              AllOf(HasSubstr("Requests on the device"), HasSubstr("gh200"), HasSubstr("cannot hold the weights and")));
}

}  // namespace
}  // namespace tandem::testing
