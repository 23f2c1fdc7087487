#include "engine/runtime/copy_op.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace tandem {

void Copier::Between::add(std::size_t to, std::size_t from, std::size_t bytes) {
  if (bytes == 0) return;
  if (list_ != nullptr) {
    list_->add(to_, to, from_, from, bytes);
  } else if (cost_ == nullptr) {
    std::memcpy(to_ + to, from_ + from, bytes);
  } else if (to_host_ == from_host_) {
    (to_host_ ? cost_->dram : cost_->hbm) += 2 * bytes;
  } else {
    (to_host_ ? cost_->d2h : cost_->h2d) += bytes;
    const std::uint32_t before = pieces_.count();
    pieces_.add(to_host_ ? to : from, bytes);
    cost_->pieces += pieces_.count() - before;
    if (!short_) return;
    cost_->short_bytes += bytes;
    cost_->short_pieces += pieces_.count() - before;
  }
}

Copier::Between Copier::begin(const TierBuffer& to, bool from_host) {
  Between pieces;
  pieces.list_ = list_;
  pieces.cost_ = cost_;
  pieces.to_host_ = to.tier() == Tier::host;
  pieces.from_host_ = from_host;
  over_link_ |= pieces.to_host_ != from_host;
  if (ctx_ != nullptr) pieces.to_ = to.write<char>(*ctx_);
  return pieces;
}

Copier::Between Copier::between(const TierBuffer& to, const TierBuffer& from) {
  Between pieces = begin(to, from.tier() == Tier::host);
  if (ctx_ != nullptr) pieces.from_ = from.read<char>(*ctx_);
  return pieces;
}

Copier::Between Copier::short_runs(const TierBuffer& to, const TierBuffer& from) {
  Between pieces = between(to, from);
  pieces.short_ = true;
  return pieces;
}

Copier::Between Copier::from_values(const TierBuffer& to, std::span<const std::byte> values) {
  Between pieces = begin(to, to.tier() == Tier::host);
  pieces.from_ = reinterpret_cast<const char*>(list_ != nullptr ? launch_->upload(values) : values.data());
  return pieces;
}

void set_copies(Op& op, Copies copies) {
  op.kind = Kind::copy;
  op.cost.pieces = 0;
  Copier counter(op.cost);
  copies(counter);
  op.cost.pieces = std::max(op.cost.pieces, 1u);
  const auto shared = std::make_shared<const Copies>(std::move(copies));
  op.body = [shared](BodyContext& ctx) {
    Copier copier(ctx);
    (*shared)(copier);
  };
  op.launch = [shared](LaunchContext& ctx) {
    CopyList list;
    Copier copier(ctx, list);
    (*shared)(copier);
    list.copy(copier.way(), ctx.stream());
  };
}

void copy_rows(Op& op, std::uint32_t rows, std::vector<RowsCopy> copies) {
  for (const RowsCopy& copy : copies) {
    op.access.push_back(copy.from.reads(0, rows));
    op.access.push_back(copy.to.writes(0, rows));
  }
  set_copies(op, [copies = std::move(copies)](Copier& copier) {
    for (const RowsCopy& copy : copies) copier.between(copy.to, copy.from).add(0, 0, copy.bytes);
  });
}

Event copy_shared_tail(Device& device, KvStore& kv, SequenceId sequence) {
  Op op("copy shared tail", Cause::transfer);
  const std::vector<SlotCopy> copies = kv.privatise_tail(sequence, op.after);
  if (copies.empty()) return {};
  for (const SlotCopy& copy : copies) {
    op.access.push_back(kv.slot_access(Tier::device, copy.from, 1, Range{0, kv.shape().kv_heads}, false));
    op.access.push_back(kv.slot_access(Tier::device, copy.to, 1, Range{0, kv.shape().kv_heads}, true));
  }
  set_copies(op, [&kv, copies](Copier& copier) {
    copier.between(kv.device_buffer(), kv.device_buffer()).add(copies, kv.shape().slot_bytes());
  });
  op.cost.pieces = static_cast<std::uint32_t>(copies.size());
  const Event copied = device.submit(device.lane(LaneKind::device_compute), std::move(op));
  kv.set_copied(copies, copied);
  return copied;
}

}  // namespace tandem
