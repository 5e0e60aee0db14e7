// What other tools would say at one moment.

import { type Account, familyPssAt, pssAt, TREE } from "./account";
import type { CgroupReading, Model } from "./data";
import { secondsText } from "./format";
import { isThere, lastAt } from "./interval";
import { Size } from "./parts";

interface Moment {
  time: number;
  processes: number;
  rss: number | null;
  lessShared: number | null;
  pss: { bytes: number | null; estimate: boolean };
  cgroup: { usage: number | null; held: number | null; file: number | null } | null;
}

// The last reading up to the moment, or the first.
function readingAt(model: Model, time: number): CgroupReading | null {
  const readings = model.report.family.cgroup.readings ?? [];
  return [...readings].reverse().find((reading) => reading.time_s <= time) ?? readings[0] ?? null;
}

function momentOf(model: Model, scope: number, time: number): Moment {
  let rss: number | null = null, shared: number | null = null, processes = 0;
  const members = scope === TREE ? model.processes.map((_, i) => i) : [scope];
  for (const process of members) {
    if (!isThere(model, process, time)) continue;
    processes++;
    const poll = lastAt(model.pollTime, model.pollStart[process], model.pollStart[process + 1], time + 1e-6);
    const snapshot = lastAt(model.time, model.snapshotStart[process], model.snapshotStart[process + 1], time);
    if (poll >= 0) shared = (shared ?? 0) + model.pollShared[poll];
    if (poll >= 0) rss = (rss ?? 0) + model.pollRss[poll];
    else if (snapshot >= 0) rss = (rss ?? 0) + model.rss[snapshot];
  }
  const reading = readingAt(model, time);
  return {
    time, processes, rss,
    lessShared: rss === null || shared === null ? null : Math.max(rss - shared, 0),
    pss: scope === TREE ? familyPssAt(model, time) : pssAt(model, scope, time),
    cgroup: reading && {
      usage: reading.usage ?? null, file: reading.file ?? null,
      held: reading.anon === undefined || reading.anon === null ? null : reading.anon + (reading.shmem ?? 0),
    },
  };
}

// Of the whole recording what the report says of it.
function reportedMoment(model: Model): Moment | null {
  const peak = model.report.family.accounting.at_peak;
  return peak && {
    time: peak.time_s, processes: peak.processes.length + peak.left_out, rss: peak.rss_sum, lessShared: peak.rss_less_shared,
    pss: { bytes: peak.pss_sum, estimate: peak.estimate },
    cgroup: readingAt(model, peak.time_s) && { usage: peak.cgroup_usage, held: peak.cgroup_held, file: peak.cgroup_file },
  };
}

export function AtCursor({ model, account, cursor }: { model: Model; account: Account; cursor: number | null }) {
  const { scope } = account, tree = scope === TREE;
  const isAll = cursor === null && account.selection.kind === "whole" && (tree || model.processes.length === 1);
  const reported = isAll ? reportedMoment(model) : null;
  const moment = reported ?? momentOf(model, scope, cursor ?? account.peakTime ?? account.to);
  const reading = readingAt(model, moment.time);
  const rows: [string, string, number | null, boolean][] = [
    [tree ? "top, ps: RES summed" : "top, ps: RES", tree ? "Slurm's MaxRSS; shared pages count in every process" : "as it was polled", moment.rss, false],
    ["without files and shared memory", "Slurm with NoShared", moment.lessShared, false],
    ["PSS", tree ? "Slurm with UsePss; every page once" : "its part of what it shares", moment.pss.bytes, moment.pss.estimate],
    ["memory cgroup: usage", reading ? `all that runs in it; read at ${secondsText(reading.time_s)}` : "not read", moment.cgroup?.usage ?? null, false],
    ["anonymous and shared memory of it", "what the limit cannot take back", moment.cgroup?.held ?? null, false],
    ["file cache of it", "what it can take back", moment.cgroup?.file ?? null, false],
  ];
  const when = cursor !== null ? "" : reported ? ", the fullest moment that was read" : ", when there was most";
  return (
    <div class="other-tools" data-testid="at-cursor">
      <p class="note">At {secondsText(moment.time)}{tree ? `, ${moment.processes} ${moment.processes === 1 ? "process" : "processes"}` : ""}{when}</p>
      <dl>
        {rows.map(([name, why, bytes, estimate]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd><Size bytes={bytes} estimate={estimate} name={name} /> <span class="why">{why}</span></dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
