#include "attribute/attribute.h"

#include <array>
#include <optional>

#include "attribute/heap.h"
#include "attribute/ledger.h"
#include "attribute/picture/page_map_builder.h"
#include "attribute/rules.h"

namespace whyrss {
namespace {

struct Rule {
  Cause cause;
  std::optional<Claim> (*claim)(const Evidence&, const Fragment&);
};

constexpr std::array kRulesBeforeHeap{
    Rule{Cause::whyrss, rules::claim_whyrss},
    Rule{Cause::device, rules::claim_device},
    Rule{Cause::shared_memory, rules::claim_shared_memory},
    Rule{Cause::file_cache, rules::claim_file_cache},
    Rule{Cause::file_cow, rules::claim_file_cow},
    Rule{Cause::lazy_free, rules::claim_lazy_free},
    Rule{Cause::fork_cow, rules::claim_fork_cow},
    Rule{Cause::fork_shared, rules::claim_fork_shared},
    Rule{Cause::stack, rules::claim_stack},
};

static_assert(
    [] {
      for (std::size_t i = 1; i < kRulesBeforeHeap.size(); ++i)
        if (kRulesBeforeHeap[i - 1].cause >= kRulesBeforeHeap[i].cause) return false;
      return kRulesBeforeHeap.back().cause < Cause::heap_live;
    }(),
    "rules claim in the order of Cause");

}  // namespace

Account attribute(const Evidence& evidence, PageMap* picture) {
  PageMapBuilder pages;
  PageMapBuilder* const builder = picture != nullptr ? &pages : nullptr;
  Ledger ledger(evidence, builder);
  const auto claim = [&](const Rule& rule) {
    ledger.claim(rule.cause, [&](const Fragment& fragment) { return rule.claim(evidence, fragment); });
  };
  for (const Rule& rule : kRulesBeforeHeap) claim(rule);
  HeapSummary heap;
  if (evidence.traced) heap = book_heap(ledger, evidence, builder);
  claim({Cause::anonymous, rules::claim_anonymous});
  Account account = ledger.close();
  account.has_liveness = heap.exact;
  account.pymalloc = heap.pymalloc;
  if (picture != nullptr) *picture = pages.build(evidence.vmas);
  return account;
}

}  // namespace whyrss
