// What becomes of pages that forks made shared, over all processes of a fork family.
//
// The exclusive bit says "mapped once", not "my own copy": it turns on for the one who copied, for the one who is left
// alone with the old page because the others copied, and for the one whose relatives ended. So for each address the
// family's model keeps who still *holds* the page as it was at the fork. Between two walks some holders write, some
// leave (they end, run exec, unmap), some remain:
//
//     held by A, B, C ──▶ held by A, B ──▶ held by A alone ──▶ not held any more
//               C wrote: copied     B wrote: copied, and A          A wrote: reused
//               or C left           has it copied_by_relatives
//                                   or B left: A has it left_by_relatives
//
//   a holder remains        every writer copied
//   none, and none left     all writers copied but the last, whose write reused the page
//   one remains alone       the page is its own now: its relatives copied, or they left
//   a sole holder writes    it reuses the page
// Who wrote is known where writes were tracked (a page that was marked and is marked no more). Elsewhere a page that
// turned exclusive is taken for a copy while the process's minor faults since its last walk suffice, in children
// before parents.
//
// Memory grows with the stretches of addresses that differ in their holders, not with pages.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "attribute/inheritance.h"
#include "attribute/interval_map.h"

namespace whyrss {

enum class PageTransition : std::uint8_t {
  copied,               // written while another process held it
  copied_by_relatives,  // its own now: the last other one copied
  left_by_relatives,    // its own now: the last other one ended, or unmapped it
  reused,               // written when no other process held it
};

struct TransitionRange {
  std::uint64_t start = 0, end = 0;
  PageTransition transition = PageTransition::copied;
  bool doubtful = false;  // it copied some pages, by its faults; these ones, or others that it has alone as well
  friend bool operator==(const TransitionRange&, const TransitionRange&) = default;
};

class PageSharing {
 public:
  using Member = std::uint32_t;  // numbered by birth

  explicit PageSharing(std::uint64_t page_bytes = 4096) : page_bytes_(page_bytes) {}

  // Times are in any unit, and never decrease from call to call.
  Member add(std::optional<Member> parent, double time_s);
  // Pages that the parent had at the fork, which its child now maps too.
  void share(Member child, std::uint64_t start, std::uint64_t end, double time_s);
  // Pages that the process unmapped or gave back.
  void drop(Member member, std::uint64_t start, std::uint64_t end, double time_s);
  // The process ended or ran exec.
  void leave(Member member, double time_s);
  [[nodiscard]] bool has_left(Member member) const { return member < processes_.size() && processes_[member].left; }
  // The process, at which no walk comes any more, copied `page_count` pages after its last one, of what others have
  // too, or of what another one was found alone with since: from address `first` on, and then from the lowest one;
  // which ones is a guess. Returns what became of whose pages, by member.
  std::vector<std::vector<TransitionRange>> copy(Member member, std::uint64_t page_count, std::uint64_t first);
  // What a process showed before a fork is no walk of what it shares since.
  [[nodiscard]] bool has_forked_since(Member member, double time_s) const;
  // A walk that is none, as the process forked meanwhile. Pages that it shows written are marked anew after it.
  void skip_walk(Member member, const std::vector<AnonymousRun>& runs, double time_s);
  // From its last walk on writes of this process to these pages are known from AnonymousRun::marked.
  void mark(Member member, std::uint64_t start, std::uint64_t end);

  struct Walk {
    Member member = 0;
    const std::vector<AnonymousRun>* runs = nullptr;  // all private anonymous pages of the process
    std::uint64_t most_copies = 0;                    // pages: by its faults since its last walk, where not tracked
    double wrote_s = 0;   // when it took half of those faults; of two writers the first copied
    double walked_s = 0;  // when this walk began, within the moment
  };
  // Walks of several processes in the same moment, at most one each. They come one after another, and the processes go
  // on meanwhile. Returns the transitions of pages by member; processes that were not walked may have some too.
  // Ranges are sorted and disjoint.
  std::vector<std::vector<TransitionRange>> observe(const std::vector<Walk>& walks, double time_s);

  // No walk comes any more: what became of pages whose other holders have ended since the last one. `ended`: by member.
  [[nodiscard]] std::vector<std::vector<TransitionRange>> finish(const std::vector<bool>& ended);

  [[nodiscard]] bool holds_nothing() const { return pages_.empty(); }

 private:
  friend class SharingRound;
  // Who was found alone with a page; it may have left since.
  struct Pending {
    Member member = 0;
    bool kept = false;    // it has not copied the page
    double shared_s = 0;  // its walk before that one
    friend bool operator==(const Pending&, const Pending&) = default;
  };
  // Of one physical page.
  struct Group {
    std::vector<Member> holders;       // sorted
    std::vector<Member> missing;       // hold it no more, as another one holds it alone: their next walk says why
    std::optional<Pending> pending{};  // that one: until then it is not known why
    double shared_s = 0;               // the holders were known to share it then
    double left_s = kNobody;           // when the last of those left that no transition reports yet
    friend bool operator==(const Group&, const Group&) = default;
  };
  static constexpr double kNobody = -1;
  using Groups = std::vector<Group>;  // of one address
  struct Part {
    std::uint64_t start = 0, end = 0;
    Groups groups;
  };
  struct Process {
    std::optional<Member> parent;
    double born_s = 0, last_walk_s = 0;
    bool left = false;
    bool has_forked = false;
    std::uint64_t copies_unseen = 0;  // pages that it was found to have copied, by walks at others, since its last one
    double skipped_walk_s = 0;
    IntervalMap<double> marked_s;  // the walk after which its writes became known
    // What its last walk showed mapped 2 MiB at a time, if there was one since it joined.
    std::optional<IntervalMap<bool>> whole{};
  };

  [[nodiscard]] std::vector<Part> parts_within(std::uint64_t start, std::uint64_t end) const;
  template <typename Change>
  void change_within(std::uint64_t start, std::uint64_t end, Change change);
  void copy_some(Member member, std::uint64_t& page_count, std::uint64_t start, std::uint64_t end,
                 std::vector<std::vector<TransitionRange>>& transitions);
  void take_out(Groups& groups, Member member, double time_s) const;

  std::uint64_t page_bytes_;
  std::vector<Process> processes_;
  IntervalMap<Groups> pages_;
};

}  // namespace whyrss
