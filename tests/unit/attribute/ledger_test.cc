// The ledger: a byte is claimed once, the first rule wins, the rest is unknown, and the totals balance
// after every step (the ledger itself requires that, also here).
#include "attribute/ledger.h"

#include <gtest/gtest.h>

#include <optional>

namespace whyrss::ledger_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr auto kStack = StackId{7};

Evidence two_mappings() {
  Evidence evidence;
  evidence.time_s = 1.5;
  evidence.vmas = {{.start = 16 * kPage, .end = 32 * kPage, .path = "/a", .backing = Backing::file},
                   {.start = 64 * kPage, .end = 80 * kPage, .path = {}, .backing = Backing::anonymous}};
  evidence.runs = {{16 * kPage, 20 * kPage, true, false},
                   {20 * kPage, 22 * kPage, false, true},
                   {64 * kPage, 70 * kPage, false, true}};
  return evidence;
}

std::int64_t unclaimed_bytes(const Ledger& ledger) {
  std::int64_t bytes = 0;
  for (const Fragment& fragment : ledger.unclaimed()) bytes += static_cast<std::int64_t>(fragment.end - fragment.start);
  return bytes;
}

TEST(Ledger, WithoutClaimsEverythingIsUnknown) {
  const Evidence evidence = two_mappings();
  const Account account = Ledger(evidence).close();
  EXPECT_EQ(account.rss_bytes, 12 * 4096);
  EXPECT_EQ(account.time_s, 1.5);
  ASSERT_EQ(account.slices.size(), 2U);
  for (const Slice& slice : account.slices) EXPECT_EQ(slice.site.cause, Cause::unknown);
  EXPECT_EQ(account.slices[0].bytes + account.slices[1].bytes, account.rss_bytes);
}

TEST(Ledger, TheFirstClaimWins) {
  const Evidence evidence = two_mappings();
  Ledger ledger(evidence);
  EXPECT_EQ(unclaimed_bytes(ledger), 12 * 4096);
  ledger.claim(Cause::file_cache, [](const Fragment& fragment) {
    return fragment.file ? std::optional(Claim{kStack, "/a"}) : std::nullopt;
  });
  EXPECT_EQ(unclaimed_bytes(ledger), 8 * 4096);
  ledger.claim(Cause::anonymous, [](const Fragment&) { return std::optional(Claim{}); });
  EXPECT_EQ(unclaimed_bytes(ledger), 0);
  ledger.claim(Cause::heap_live, [](const Fragment&) { return std::optional(Claim{}); });
  const Account account = ledger.close();
  ASSERT_EQ(account.slices.size(), 2U);
  EXPECT_EQ(account.slices[0].site.cause, Cause::anonymous);
  EXPECT_EQ(account.slices[0].bytes, 8 * 4096);
  EXPECT_EQ(account.slices[0].exclusive_bytes, 8 * 4096);
  EXPECT_EQ(account.slices[1].site, (Site{Cause::file_cache, kStack, "/a"}));
  EXPECT_EQ(account.slices[1].bytes, 4 * 4096);
  EXPECT_EQ(account.slices[1].exclusive_bytes, 0);
}

TEST(Ledger, TellsOnceWhatOfBlocksAndMappingsIsNotResident) {
  Evidence evidence = two_mappings();
  evidence.vmas[1].writable = true;
  evidence.owned = {{16 * kPage, 17 * kPage, Owner::block, kStack},     // of a file: not asked for
                    {60 * kPage, 66 * kPage, Owner::block, kStack},     // 64 to 66 is mapped, and resident
                    {66 * kPage, 72 * kPage, Owner::block, kStack},     // 66 to 70 is resident
                    {72 * kPage, 90 * kPage, Owner::program, kStack}};  // 72 to 80 is mapped
  Ledger ledger(evidence);
  ledger.claim(Cause::heap_live, [](const Fragment& fragment) {
    return fragment.owned_by(Owner::block) ? std::optional(Claim{kStack, fragment.end <= 66 * kPage ? "a" : "b"})
                                           : std::nullopt;
  });
  std::int64_t untouched = 0;
  for (const Slice& slice : ledger.close().slices) untouched += slice.untouched_bytes;
  EXPECT_EQ(untouched, 2 * 4096);
}

TEST(Ledger, CutsRunsWhereOwnersChangeInsideAPage) {
  Evidence evidence = two_mappings();
  evidence.owned = {{64 * kPage + 100, 64 * kPage + 200, Owner::block, kStack},
                    {69 * kPage, 90 * kPage, Owner::program, StackId{9}}};
  Ledger ledger(evidence);
  ledger.claim(Cause::heap_live, [](const Fragment& fragment) {
    return fragment.owned_by(Owner::block) ? std::optional(Claim{fragment.owned->stack, ""}) : std::nullopt;
  });
  ledger.claim(Cause::anonymous, [](const Fragment& fragment) {
    return fragment.owned_by(Owner::program) ? std::optional(Claim{fragment.owned->stack, ""}) : std::nullopt;
  });
  const Account account = ledger.close();
  std::int64_t block_bytes = 0, program_bytes = 0, total_bytes = 0;
  for (const Slice& slice : account.slices) {
    total_bytes += slice.bytes;
    if (slice.site.stack == kStack) block_bytes += slice.bytes;
    if (slice.site.stack == StackId{9}) program_bytes += slice.bytes;
  }
  EXPECT_EQ(block_bytes, 100);
  EXPECT_EQ(program_bytes, 4096);
  EXPECT_EQ(total_bytes, 12 * 4096);
}

TEST(Ledger, BalancesAfterEveryStepForManyRandomEvidences) {
  std::uint64_t seed = 1;
  const auto random = [&](std::uint64_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % below;
  };
  for (int round = 0; round < 200; ++round) {
    Evidence evidence;
    std::uint64_t at = kPage;
    for (std::uint64_t vma = 0; vma < 1 + random(6); ++vma) {
      at += random(3) * kPage;
      const std::uint64_t start = at;
      for (std::uint64_t run = 0; run < random(5); ++run) {
        const std::uint64_t run_start = at + random(4) * kPage;
        at = run_start + (1 + random(5)) * kPage;
        evidence.runs.push_back({run_start, at, random(2) == 0, random(2) == 0});
      }
      at += kPage;
      evidence.vmas.push_back({.start = start, .end = at, .path = vma % 2 == 0 ? "/x" : ""});
    }
    for (std::uint64_t from = random(3000); from < at;) {
      const std::uint64_t to = from + 1 + random(30000);
      evidence.owned.push_back(
          {from, to, static_cast<Owner>(random(5)), StackId{static_cast<std::uint32_t>(random(3))}});
      from = to + random(9000);
    }
    for (std::uint64_t from = random(8) * kPage; from < at;) {
      const std::uint64_t to = from + (1 + random(4)) * kPage;
      evidence.inherited.push_back({from, to, static_cast<ForkClass>(1 + random(3))});
      from = to + random(3) * kPage;
    }
    Ledger ledger(evidence);
    std::int64_t left = unclaimed_bytes(ledger);
    std::int64_t resident = 0;
    for (const ResidentRun& run : evidence.runs) resident += static_cast<std::int64_t>(run.end - run.start);
    EXPECT_EQ(left, resident);
    for (const Cause cause : {Cause::device, Cause::file_cow, Cause::fork_cow, Cause::heap_live}) {
      ledger.claim(cause, [&](const Fragment& fragment) {
        return random(2) == 0
                   ? std::optional(Claim{fragment.owned != nullptr ? fragment.owned->stack : kEmptyStack, ""})
                   : std::nullopt;
      });
      EXPECT_LE(unclaimed_bytes(ledger), left);
      left = unclaimed_bytes(ledger);
    }
    const Account account = ledger.close();
    std::int64_t total = 0;
    for (const Slice& slice : account.slices) {
      EXPECT_GT(slice.bytes, 0);
      EXPECT_LE(slice.exclusive_bytes, slice.bytes);
      total += slice.bytes;
    }
    EXPECT_EQ(total, resident);
    EXPECT_EQ(account.rss_bytes, resident);
  }
}

TEST(LedgerDeathTest, RefusesEvidenceThatCannotBalance) {
  Evidence outside = two_mappings();
  outside.runs.push_back({79 * kPage, 81 * kPage, false, true});
  EXPECT_DEATH(Ledger{outside}, "outside its mapping");
  Evidence twice = two_mappings();
  twice.runs.push_back(twice.runs.back());
  EXPECT_DEATH(Ledger{twice}, "not sorted");
}

}  // namespace
}  // namespace whyrss::ledger_test
