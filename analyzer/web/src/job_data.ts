// What analyzer/job/job_html.cc wrote: the document of `report JOB --format json`, its sentences, and memory over time.

import { type Cause, Columns } from "./data";

export interface Spread {
  min: number;
  median: number;
  p95: number;
  max: number;
  sum: number;
}

export interface Label {
  rank: number | null;
  pid: number;
  node: string;
}

export interface JobLine {
  cause: string;
  line: string;
  file: string;
  mapping: string | null;
}

export interface GroupLine extends JobLine {
  processes: number;
  sum: number;
  error: number;
  standard_error: number;
  median: number;
  p95: number;
  max: number;
}

export type Severity = "ok" | "info" | "warning" | "problem";

export interface GroupVerdict {
  id: string;
  severity: Severity;
  processes: number;
  bytes: Spread;
  headline: string;
  most: Label;
}

export interface Group {
  name: string;
  workers: boolean;
  processes: number;
  ranks: number[];
  rss_peak: Spread;
  rss_by_time: { p50: number; p95: number; p99: number };
  largest: Label;
  causes: { cause: string; at_peak: Spread }[];
  lines: GroupLine[];
  verdicts: GroupVerdict[];
}

export interface Outlier extends Label {
  group: number;
  rss_peak: number;
  held: number;
  median: number;
  headline: string;
  most: (JobLine & { bytes: number; median: number }) | null;
}

export interface JobNode {
  name: string;
  processes: number;
  private_peak: number;
  files_once: number;
  shared_once: number;
  total: number;
  rss_sum_peak: number;
  pss_peaks: number;
  without_pss: number;
  limit: number | null;
  limit_of: "cgroup" | "machine" | null;
  oom_killed: number;
}

export interface SharedFile {
  mapping: string;
  nodes: number;
  processes: number;
  rss_sum: number;
  once: number;
}

export interface JobDocument {
  path: string;
  jobs: string[];
  versions: string[];
  started: string;
  recordings: number;
  complete: number;
  process_count: number;
  expected_nodes: number | null;
  outliers: Outlier[];
  groups: Group[];
  nodes: JobNode[];
  files: SharedFile[];
}

export interface JobHeader {
  format: number;
  kind: "job";
  job: JobDocument;
  head: string;
  headlines: { severity: Severity; text: string }[];
  missing: string[];
  causes: Cause[];
  left_out: { lines: number; nodes: number; files: number };
  timeline: { stretches: number; stretch_s: number; groups: { group: number | null; causes: number[] }[] };
  columns: ConstructorParameters<typeof Columns>[0];
}

// Of all processes, or of a group: values of each stretch of time.
export interface JobTimeline {
  causes: Map<number, Float64Array>; // sums, on average over the stretch
  p50: Float64Array; // of RSS of a process
  p95: Float64Array;
  p99: Float64Array;
  max: Float64Array;
  processes: Float64Array;
}

export const ALL = -1; // groups

export class JobModel {
  readonly job: JobDocument;
  readonly causes: Cause[];
  readonly causeOfSlug: Map<string, number>;
  readonly stretches: number;
  readonly stretchSeconds: number;
  readonly timelines = new Map<number, JobTimeline>(); // by group

  constructor(readonly header: JobHeader, bytes: Uint8Array) {
    this.job = header.job;
    this.causes = header.causes;
    this.causeOfSlug = new Map(header.causes.map((cause, i) => [cause.slug, i]));
    const { stretches, stretch_s, groups } = header.timeline;
    this.stretches = stretches;
    this.stretchSeconds = stretch_s;
    const columns = new Columns(header.columns, bytes);
    const runs = (count: number) => new Array<number>(count).fill(stretches);
    const causes = columns.sums("time_causes", runs(groups.reduce((sum, group) => sum + group.causes.length, 0)));
    const [p50, p95, p99, max, processes] = ["p50", "p95", "p99", "max", "processes"].map((name) => columns.sums(`time_${name}`, runs(groups.length)));
    let run = 0;
    groups.forEach((group, i) => {
      const part = (values: Float64Array, at: number) => values.subarray(at * stretches, (at + 1) * stretches);
      this.timelines.set(group.group ?? ALL, {
        causes: new Map(group.causes.map((cause) => [cause, part(causes, run++)])),
        p50: part(p50, i), p95: part(p95, i), p99: part(p99, i), max: part(max, i), processes: part(processes, i),
      });
    });
  }

  groupName(group: number): string {
    if (group === ALL) return "all processes";
    const { name, workers } = this.job.groups[group];
    return workers ? `${name}, its workers` : name;
  }
}

export function labelText({ rank, pid, node }: Label): string {
  return rank === null ? `pid ${pid} on ${node}` : `rank ${rank}`;
}

// As line_text in analyzer/job/job_text.cc.
export function lineText({ line, mapping }: JobLine): string {
  const file = mapping === null ? "" : mapping.slice(mapping.lastIndexOf("/") + 1);
  if (!file) return line || "(no call recorded)";
  return line ? `${file} (${line})` : file;
}

// "0-36,38": as ranges_text in analyzer/job/node_list.cc.
export function rangesText(numbers: number[], mostRanges = 8): string {
  const ranges: string[] = [];
  for (let i = 0; i < numbers.length; ) {
    let end = i;
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) end++;
    if (ranges.length === mostRanges) return `${ranges.join(",")},...`;
    ranges.push(i === end ? `${numbers[i]}` : `${numbers[i]}-${numbers[end]}`);
    i = end + 1;
  }
  return ranges.join(",");
}
