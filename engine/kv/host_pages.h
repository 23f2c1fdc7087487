// Host slots of a sequence's pages by layer, from some first page on: looked up once, as pages come to host memory,
// instead of in every step. Operations keep the list as it was when they were submitted.
#pragma once

#include <memory>
#include <vector>

#include "engine/common/error.h"
#include "engine/kv/kv_store.h"

namespace tandem {

class HostPages {
 public:
  using List = std::shared_ptr<const std::vector<std::uint32_t>>;  // [page] slots

  explicit HostPages(std::uint32_t layers) : lists_(layers) {}

  /// Of `pages`, which are on the host for as long as the sequence lives; a layer's lists all begin with one page.
  const List& of(const KvStore& kv, SequenceId sequence, std::uint32_t layer, Range pages) {
    List& known = lists_[layer];
    const std::size_t wanted = pages.end - pages.begin;
    if (known != nullptr && known->size() == wanted) return known;
    auto more = known == nullptr ? std::make_shared<std::vector<std::uint32_t>>()
                                 : std::make_shared<std::vector<std::uint32_t>>(*known);
    TANDEM_CHECK(more->size() <= wanted, "{} pages of layer {} are left of {}", wanted, layer, more->size());
    more->reserve(wanted);
    for (auto page = pages.begin + static_cast<std::uint32_t>(more->size()); page < pages.end; ++page) {
      more->push_back(kv.slot(sequence, layer, page, Tier::host));
      TANDEM_CHECK(more->back() != KvStore::kNoSlot, "page {} of layer {} is not on the host", page, layer);
    }
    known = std::move(more);
    return known;
  }

 private:
  std::vector<List> lists_;
};

}  // namespace tandem
