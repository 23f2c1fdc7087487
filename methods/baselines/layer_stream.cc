#include "methods/baselines/layer_stream.h"

#include <algorithm>

namespace tandem {
namespace {

std::uint32_t room_for(const SequenceState& sequence, std::uint32_t block) {
  return std::max(sequence.max_tokens, sequence.tokens) / block * block;
}

void fetch_layer(std::uint32_t layer, std::span<const StreamedRow> rows, Ops& ops) {
  std::vector<FetchRequest> requests;
  requests.reserve(rows.size());
  for (const StreamedRow& row : rows) requests.push_back({row.sequence, row.stream->staging, Ranges{{0, row.end}}});
  const std::vector<KvSource> fetched = ops.fetch(layer, requests);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].stream->fetched[layer % rows[i].stream->parts()] = fetched[i];
}

}  // namespace

LayerStream open_layer_stream(SequenceState& sequence, std::uint32_t parts, std::uint32_t block, Ops& ops) {
  LayerStream stream;
  stream.block = block;
  stream.fetched.resize(parts);
  stream.room = room_for(sequence, block);
  stream.staging = ops.make_staging(sequence, stream.room, parts);
  return stream;
}

void stream_layers(const LayerContext& context, std::uint32_t layers, std::span<const StreamedRow> rows, Ops& ops) {
  if (rows.empty()) return;
  const std::uint32_t ahead = rows.front().stream->parts() - 1;
  // A step fetches for itself only: whether there is a next one, its token decides.
  if (context.layer > 0) {
    if (context.layer + ahead < layers) fetch_layer(context.layer + ahead, rows, ops);
    return;
  }
  for (const StreamedRow& row : rows) {
    if (row.end <= row.stream->room) continue;  // but of a session that goes on
    row.stream->room = room_for(*row.sequence, row.stream->block);
    ops.renew_staging(*row.sequence, row.stream->staging, row.stream->room);
  }
  for (std::uint32_t layer = 0; layer <= ahead && layer < layers; ++layer) fetch_layer(layer, rows, ops);
}

}  // namespace tandem
