#include "attribute/attribute.h"

#include <array>
#include <optional>

#include "attribute/ledger.h"
#include "attribute/rules.h"

namespace whyrss {
namespace {

struct Rule {
  Cause cause;
  std::optional<Claim> (*claim)(const Evidence&, const Fragment&);
};

constexpr std::array kRules{
    Rule{Cause::whyrss, rules::claim_whyrss},
    Rule{Cause::device, rules::claim_device},
    Rule{Cause::shared_memory, rules::claim_shared_memory},
    Rule{Cause::file_cache, rules::claim_file_cache},
    Rule{Cause::file_cow, rules::claim_file_cow},
    Rule{Cause::fork_cow, rules::claim_fork_cow},
    Rule{Cause::fork_shared, rules::claim_fork_shared},
    Rule{Cause::stack, rules::claim_stack},
    Rule{Cause::heap_live, rules::claim_heap_live},
    Rule{Cause::anonymous, rules::claim_anonymous},
};

static_assert(
    [] {
      for (std::size_t i = 1; i < kRules.size(); ++i)
        if (kRules[i - 1].cause >= kRules[i].cause) return false;
      return true;
    }(),
    "rules claim in the order of Cause");

}  // namespace

Account attribute(const Evidence& evidence) {
  Ledger ledger(evidence);
  for (const Rule& rule : kRules)
    ledger.claim(rule.cause, [&](const Fragment& fragment) { return rule.claim(evidence, fragment); });
  return ledger.close();
}

}  // namespace whyrss
