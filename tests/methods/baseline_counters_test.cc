// What the baselines read, move, attend and hold, counted by hand.
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

TEST(HybridFixed, CountsWhatItMovesAndAttends) {
  Bench bench(tiny_model());
  const auto method = make_method("hybrid-fixed:budget=0.1,block=16,sinks=64,window=256");
  const DecodeResult result = bench.decode(*method, {random_prompt(1025, 4)}, 4);  // 1,024 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  const std::uint64_t host_tokens = 1024 - 256 - 64;  // 704 = 44 blocks, 5 per head
  const DecodedSequence& sequence = result.sequences[0];
  std::uint64_t offloaded = 0, queries = 0, partials = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "offload kv") offloaded += r.cost.d2h;
    if (name == "query to host") queries += r.cost.d2h;
    if (name == "host partials to device") partials += r.cost.h2d;
  }
  EXPECT_EQ(offloaded, host_tokens * shape.token_bytes());
  EXPECT_EQ(queries, 4u * 2 * 4 * 16 * 4);         // steps x layers x heads x D x f32
  EXPECT_EQ(partials, 4u * 2 * (4 * 16 + 4) * 4);  // the same and one lse per head
  // The device sees sinks, window and the tokens decoded so far; a KV head's group sees 5 to 10 blocks on the host.
  EXPECT_EQ(sequence.attended[0], 4u * 320 + 1 + 2 + 3 + 4);
  EXPECT_GE(sequence.attended[1], 4u * 5 * 16);
  EXPECT_LE(sequence.attended[1], 4u * 10 * 16);
  EXPECT_EQ(sequence.peak_kv_bytes[0], (320 + 16) * shape.token_bytes());
  const std::uint64_t digests = 2 * 2 * 2 * 44 * 16 * 4, selection = 4 * 45 * 4;  // layers, heads, min and max
  EXPECT_EQ(sequence.peak_kv_bytes[1], host_tokens * shape.token_bytes() + digests + selection);
}

// Rows that lie side by side cross the link as one run of outputs and one of log sums.
TEST(HybridFixed, ItsPartialsCrossInRunsOfRows) {
  Bench bench(tiny_model());
  const auto pieces = [&](const std::vector<std::uint32_t>& lengths) {
    std::vector<std::vector<std::int32_t>> prompts;
    for (const std::uint32_t length : lengths) prompts.push_back(random_prompt(length, length));
    std::set<std::uint32_t> seen;
    for (const TraceRecord& r : bench.decode(*make_method("hybrid-fixed"), prompts, 3).trace.records)
      if (std::string(r.name) == "host partials to device") seen.insert(r.cost.pieces);
    return seen;
  };
  EXPECT_EQ(pieces({700, 701, 702, 703}), std::set<std::uint32_t>{2});
  EXPECT_EQ(pieces({700, 100, 702, 703}), std::set<std::uint32_t>{4}) << "the second has nothing on the host";
}

// One vector of a block where bounds are two, wherever they are read, written or kept.
TEST(Quest, MeansAreHalfOfBounds) {
  std::uint64_t built[2], kept[2], scored[2];
  for (const bool mean : {false, true}) {
    Bench bench(tiny_model());
    const auto method = make_method(mean ? "quest:budget=64,digest=mean" : "quest:budget=64");
    const DecodeResult result = bench.decode(*method, {random_prompt(113, 4)}, 3);  // 7 pages, and none more
    const KvShape& shape = bench.engine.kv().shape();
    built[mean] = scored[mean] = 0;
    for (const TraceRecord& r : result.trace.records) {
      if (r.name == std::string("build digests")) built[mean] += r.cost.hbm;
      if (r.name == std::string("select blocks")) scored[mean] += r.cost.context;
    }
    kept[mean] = result.sequences[0].peak_kv_bytes[0];
    EXPECT_EQ(built[mean], 7u * 2 * 2 * (16 + (mean ? 1 : 2)) * shape.vector_bytes());
    EXPECT_EQ(scored[mean], 3u * 2 * 2 * 7 * (mean ? 1 : 2) * shape.vector_bytes());
  }
  EXPECT_EQ(kept[0] - kept[1], 2u * 2 * 7 * 64);  // layers, heads, pages with room for a digest, bytes of a vector
}

TEST(Quest, CountsWhatItReads) {
  Bench bench(tiny_model());
  const auto method = make_method("quest:budget=64");
  const DecodeResult result = bench.decode(*method, {random_prompt(101, 4)}, 16);  // 100 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t read = 0, chosen_by = 0, digested = 0, expected_read = 0, expected_choice = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "device attention") read += r.cost.hbm;
    if (name == "select blocks") chosen_by += r.cost.hbm;
    if (name == "build digests") digested += r.cost.hbm;
  }
  std::uint64_t attended = 0;
  for (std::uint32_t tokens = 101; tokens <= 116; ++tokens) {
    const std::uint64_t newest = (tokens - 1) % 16 + 1, others = (tokens - 1) / 16;  // 6, then 7 pages with a digest
    attended += newest + 3 * 16;
    expected_read += (newest + 3 * 16) * shape.token_bytes() + 2 * 2 * 4 * 16 * 4;
    // Two layers: min and max of 2 heads, scores of 4 heads written and read, 2 lists of 3, the query.
    expected_choice += 2 * (2 * 2 * others * 64 + 2 * 4 * others * 4 + 2 * 4 * 4 + 4 * 16 * 4);
  }
  EXPECT_EQ(read, expected_read);
  EXPECT_EQ(chosen_by, expected_choice);
  // Keys of 7 pages in 2 layers and heads, and 2 vectors each.
  EXPECT_EQ(digested, 7u * 2 * 2 * (16 + 2) * 64);
  EXPECT_EQ(result.sequences[0].attended[0], attended);
  EXPECT_EQ(result.sequences[0].attended[1], 0u);
  // 8 pages; room for 116 / 16 digests; a list per query head.
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 8 * 16 * shape.token_bytes() + 2 * 2 * 2 * 7 * 64 + 4 * 8 * 4);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 0u);
}

TEST(Quest, DenseLayersHaveNoDigests) {
  Bench bench(tiny_model());
  std::size_t peak[2];
  std::uint64_t digested[2] = {0, 0};
  for (const int dense : {0, 1}) {
    const auto method = make_method("quest:budget=64,dense_layers=" + std::to_string(dense));
    const auto prefix = bench.engine.prefill(random_prompt(101, 4));
    const DecodeRequest request{prefix.get(), 30};
    const auto session = bench.engine.open_session(*method, {&request, 1});
    bench.engine.release(*prefix);
    session->decode({});
    session->append(0, random_prompt(40, 5), 30);  // the index grows
    const DecodeResult result = session->decode({});
    peak[dense] = result.sequences[0].peak_kv_bytes[0];
    for (const TraceRecord& r : result.trace.records) {
      if (std::string(r.name) != "build digests") continue;
      digested[dense] += r.cost.hbm;
      EXPECT_GE(r.layer, static_cast<std::uint32_t>(dense));
    }
  }
  EXPECT_EQ(digested[0], 2 * digested[1]);
  EXPECT_GT(digested[1], 0u);
  EXPECT_EQ(peak[0] - peak[1],
            200u / 16 * 2 * 2 * 64);  // a layer's minima and maxima of 2 heads, 200 tokens at the end
}

TEST(H2oCounters, ThePromptsMassIsHeldWhileTheSetIsMade) {
  Bench bench(tiny_model());
  const auto method = make_method("h2o:budget=40");
  const auto prefix = bench.engine.prefill(random_prompt(2001, 4));
  const DecodeRequest request{prefix.get(), 3};
  const DecodeResult result = bench.engine.decode(*method, {&request, 1});
  EXPECT_GE(prefix->sums.values.bytes(), 2u * 2 * 2000 * 4);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 2 * 2 * 40 * (2 * 64 + 8) + prefix->sums.values.bytes());
  const DecodeResult full = bench.engine.decode(*make_method("full"), {&request, 1});
  EXPECT_EQ(full.sequences[0].peak_kv_bytes[0], 2016 * bench.engine.kv().shape().token_bytes()) << "it needs no mass";
  bench.engine.release(*prefix);
}

TEST(H2oCounters, CountWhatItKeepsAndReads) {
  Bench bench(tiny_model());
  const DecodeResult result = bench.decode(*make_method("h2o:budget=40"), {random_prompt(101, 4)}, 16);
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t read = 0, kept = 0, updated = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "device attention") read += r.cost.hbm;
    if (name == "keep heavy hitters") kept += r.cost.hbm;
    if (name == "update heavy hitters") updated += r.cost.hbm;
  }
  const std::uint64_t token = 2 * 64 + 8;  // K, V, mass and position of a KV head
  EXPECT_EQ(result.sequences[0].attended[0], 16u * 41);
  EXPECT_EQ(read, 16 * (41 * shape.token_bytes() + 2 * (2 * 4 * 16 * 4 + 4 * 41 * 4)));
  EXPECT_EQ(kept, 2u * 2 * (100 * 4 + 2 * 40 * token));
  EXPECT_EQ(updated, 16u * 2 * (4 * 41 * 4 + 2 * (3 * 40 * 4 + 2 * token)));
  // The page being filled, the set, and at the end of the setup the mass of 100 tokens.
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 16 * shape.token_bytes() + 2 * 2 * 40 * token + 2 * 2 * 100 * 4);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 0u);
}

TEST(H2oCounters, AnEngineThatKeepsNoColumnSumsSaysSo) {
  const Model model = tiny_model();
  const auto device = sim();
  ThreadPool pool(1);
  EngineOptions options;
  options.kv.device_bytes = options.kv.host_bytes = std::size_t{1} << 20;
  Engine engine(model, *device, pool, options);
  const auto prefix = engine.prefill(random_prompt(20, 1));
  const DecodeRequest request{prefix.get(), 2};
  const auto method = make_method("h2o");
  EXPECT_THROW(engine.decode(*method, {&request, 1}), InputError);
}

TEST(GpuFetch, CountsWhatItFetches) {
  Bench bench(tiny_model());
  const auto method = make_method("gpu-fetch:budget=0.1,block=32,sinks=64,window=256");
  const DecodeResult result = bench.decode(*method, {random_prompt(1025, 4)}, 4);  // 1,024 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  const DecodedSequence& sequence = result.sequences[0];
  std::uint64_t fetched = 0, pieces = 0, digested = 0, to_host = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "fetch kv") {
      fetched += r.cost.h2d;
      pieces += r.cost.pieces;
      EXPECT_EQ(r.cause, Cause::recall);
    }
    if (name == "build digests") digested += r.cost.hbm;
    if (name == "offload kv") to_host += r.cost.d2h;
    EXPECT_NE(std::string(r.name), "host attention");
  }
  const std::uint64_t region = 704, blocks = 22, near = 4 * 320 + 1 + 2 + 3 + 4;  // 3 blocks per query head
  EXPECT_EQ(to_host, region * shape.token_bytes());
  EXPECT_EQ(digested, (region + 2 * blocks) * 2 * 2 * 64);  // keys of 2 layers and heads, min and max
  // The device attends to what is near and to what was fetched; a page of a KV head, K and V, is a piece.
  EXPECT_GT(fetched, 0u);
  EXPECT_EQ(fetched / pieces, 16u * 2 * 64);
  EXPECT_EQ(fetched % (32 * 2 * 64), 0u);
  const std::uint64_t chosen = fetched / (2 * 64);  // tokens, summed over 2 layers, 2 KV heads and 4 steps
  EXPECT_GE(chosen, 4u * 2 * 2 * 3 * 32);
  EXPECT_LE(chosen, 4u * 2 * 2 * 6 * 32);
  EXPECT_EQ(sequence.attended[0], near + (chosen + 2) / 4);  // the mean over layers and heads, rounded once
  EXPECT_EQ(sequence.attended[1], 0u);
  // Near pages and the new one, digests, a list per query head, room for both heads of a group choosing others.
  EXPECT_EQ(sequence.peak_kv_bytes[0],
            (320 + 16) * shape.token_bytes() + 2 * 2 * 2 * blocks * 64 + 4 * 23 * 4 + 6 * 32 * shape.token_bytes() / 2);
  EXPECT_EQ(sequence.peak_kv_bytes[1], region * shape.token_bytes());
}

TEST(FullOffload, StreamsAllWholePagesInEveryStep) {
  Bench bench(tiny_model());
  const auto method = make_method("full-offload");
  const DecodeResult result = bench.decode(*method, {random_prompt(101, 4)}, 16);  // 100 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t fetched = 0, to_host = 0, read = 0, expected_fetched = 0, attended = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "fetch kv") fetched += r.cost.h2d;
    if (name == "offload kv") to_host += r.cost.d2h;
    if (name == "device attention") read += r.cost.hbm;
  }
  for (std::uint32_t tokens = 101; tokens <= 116; ++tokens) {
    expected_fetched += (tokens - 1) / 16 * 16 * shape.token_bytes();
    attended += tokens;
  }
  EXPECT_EQ(fetched, expected_fetched);
  EXPECT_EQ(to_host, 112 * shape.token_bytes());
  EXPECT_EQ(read, attended * shape.token_bytes() + 16 * 2 * 2 * 4 * 16 * 4);
  EXPECT_EQ(result.sequences[0].attended[0], attended);
  // The page being filled, and one layer's whole pages twice.
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 16 * shape.token_bytes() + 2 * 112 * shape.token_bytes() / 2);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 112 * shape.token_bytes());
}

TEST(FullOffload, LooksAheadOneLayer) {
  // The copy of layer i + 1 runs while layer i computes: it starts before that attention and not before the last reader
  // of its room, the attention of layer i - 1, is done.
  Bench bench(tiny_model(true, 4));
  const DecodeResult ahead = bench.decode(*make_method("full-offload"), {random_prompt(2401, 4)}, 2);
  std::map<std::string, std::vector<const TraceRecord*>> by_name;
  for (const TraceRecord& r : ahead.trace.records) by_name[r.name].push_back(&r);
  const auto& fetch = by_name["fetch kv"];
  const auto& attention = by_name["device attention"];
  ASSERT_EQ(fetch.size(), 8u);
  ASSERT_EQ(attention.size(), 8u);
  for (std::size_t step = 0; step < 2; ++step) {
    for (std::size_t layer = 1; layer < 4; ++layer) {
      const std::size_t i = 4 * step + layer;
      EXPECT_LE(fetch[i]->start, attention[i - 1]->start) << "while the layer before waits for its own or computes";
      EXPECT_GE(attention[i]->start, fetch[i]->end);
      if (layer >= 2) {
        EXPECT_GE(fetch[i]->start, attention[i - 2]->end);
      }
    }
  }
  const DecodeResult without = bench.decode(*make_method("full-offload:look_ahead=0"), {random_prompt(2401, 4)}, 2);
  EXPECT_EQ(without.sequences[0].tokens, ahead.sequences[0].tokens);
  EXPECT_GT(without.idle.decode.window, ahead.idle.decode.window);
}

TEST(FullHost, AttendsToEverythingOnTheCpu) {
  Bench bench(tiny_model());
  const DecodeResult result = bench.decode(*make_method("full-host"), {random_prompt(101, 4)}, 16);  // 100 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t to_host = 0, attended = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) == "offload kv") to_host += r.cost.d2h;
    EXPECT_NE(std::string(r.name), "device attention");
  }
  for (std::uint32_t tokens = 101; tokens <= 116; ++tokens) attended += tokens;
  EXPECT_EQ(to_host, 116 * shape.token_bytes());  // the prompt, then one token a step
  EXPECT_EQ(result.sequences[0].attended[0], 0u);
  EXPECT_EQ(result.sequences[0].attended[1], attended);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 16 * shape.token_bytes());
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 8 * 16 * shape.token_bytes());
}

// Beside a long prompt, one that is all on the device.
TEST(HybridFixed, RowsWithoutAPartOnTheHostAreNotMerged) {
  Bench bench(tiny_model());
  const auto method = make_method("hybrid-fixed:sinks=16,window=32");
  const DecodeResult result = bench.decode(*method, {random_prompt(301, 4), random_prompt(21, 5)}, 3);
  std::size_t merges = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) != "merge") continue;
    ++merges;
    // Both rows' part on the device and output; one row's part from the host.
    EXPECT_EQ(r.cost.hbm, (2 * 2 + 1) * std::size_t{4} * 16 * sizeof(float));
  }
  EXPECT_EQ(merges, 3u * 2);
}

TEST(Full, ReadsEveryTokenOfEveryLayerOnce) {
  Bench bench(tiny_model());
  const auto method = make_method("full");
  const DecodeResult result = bench.decode(*method, {random_prompt(101, 4)}, 3);
  std::uint64_t read = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) == "device attention") read += r.cost.hbm;
  }
  const std::uint64_t q_and_o = 2 * 4 * 16 * 4;
  EXPECT_EQ(read, (101u + 102 + 103) * bench.engine.kv().shape().token_bytes() + 3 * 2 * q_and_o);
  EXPECT_EQ(result.sequences[0].attended[0], 101u + 102 + 103);
  EXPECT_EQ(result.sequences[0].attended[1], 0u);
}

}  // namespace
}  // namespace tandem::testing
