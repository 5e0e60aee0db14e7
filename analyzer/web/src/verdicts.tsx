// The answers, each a link to what it is about.

import { useMemo, useState } from "preact/hooks";
import { TREE } from "./account";
import type { Alike, Model, Verdict } from "./data";
import { usePrinting } from "./list";

// Which cause a verdict is about, by its id.
const CAUSE_OF: [RegExp, string][] = [
  [/^fork-cow/, "fork_cow"], [/^file-/, "file_cache"], [/^heap-retained|^retained/, "heap_retained"],
  [/^heap-fragmented/, "heap_slack"], [/^heap|^object|^retained-view|^per-process-import/, "heap_live"],
  [/^shared-memory/, "shared_memory"], [/^lazy-free/, "lazy_free"], [/^anonymous|^huge-page/, "anonymous"],
  [/^allocator/, "heap_unsplit"],
];

export interface Target {
  scope: number;
  cause: number;
}

export function targetOf(model: Model, verdict: Verdict): Target {
  const slug = CAUSE_OF.find(([id]) => id.test(verdict.id))?.[1];
  const cause = slug ? model.causes.findIndex((each) => each.slug === slug) : -1;
  // Of workers the verdict is their parent's, and the memory theirs.
  const workers = verdict.evidence.workers;
  const pid = workers === undefined ? verdict.pid : workers.length === 1 ? workers[0].pid : null;
  const scope = pid === null ? TREE : (model.processOfPid.get(pid) ?? TREE);
  return { scope, cause };
}

interface Properties {
  model: Model;
  linkTo: (target: Target) => string;
  onGo: (target: Target) => void;
}

function One({ model, linkTo, onGo, verdict, number }: Properties & { verdict: Verdict; number: string }) {
  const [open, setOpen] = useState(false);
  const printing = usePrinting();
  const target = targetOf(model, verdict), id = `verdict-${number}`;
  return (
    <div class={`verdict ${verdict.severity}`}>
      <div class="verdict-head">
        <span class={`badge ${verdict.severity}`}>{verdict.severity}</span>
        <a href={linkTo(target)} onClick={(event) => {
          event.preventDefault();
          onGo(target);
        }}>{verdict.headline}</a>
        <span class="pid">{verdict.pid !== null && model.processes.length > 1 && `process ${verdict.pid}`}</span>
        <button type="button" aria-expanded={open} aria-controls={id} aria-label={`why, and what to do: ${verdict.headline}`} onClick={() => setOpen(!open)}>
          {open ? "–" : "+"}
        </button>
      </div>
      <div id={id} hidden={!open && !printing}>
        <p>{verdict.why}</p>
        {verdict.advice && <p class="advice">{verdict.advice}</p>}
      </div>
    </div>
  );
}

// What the text report says below the verdicts of a process: who else they hold for, with their own verdicts at hand.
function AlikeRow({ alike, verdicts, ...properties }: Properties & { alike: Alike; verdicts: Verdict[] }) {
  const [open, setOpen] = useState(false);
  const id = `alike-${alike.pid}`;
  return (
    <div class="verdict alike">
      <div class="verdict-head">
        <span class="headline">{alike.text}</span>
        <button type="button" aria-expanded={open} aria-controls={id} aria-label={`verdicts of those like process ${alike.pid}`} onClick={() => setOpen(!open)}>
          {open ? "–" : "+"}
        </button>
      </div>
      <div id={id} hidden={!open}>
        {open && verdicts.map((verdict, i) => <One key={i} {...properties} verdict={verdict} number={`${alike.pid}-${i}`} />)}
      </div>
    </div>
  );
}

const SHOWN = 20;

export function Verdicts(properties: Properties) {
  const { model } = properties;
  const [all, setAll] = useState(false);
  const { own, folded } = useMemo(() => foldedVerdicts(model), [model]);
  const shown = all ? own : own.slice(0, SHOWN);
  return (
    <section class="verdicts" aria-label="Verdicts" data-testid="verdicts">
      {shown.map((verdict, i) => {
        const alike = verdict.pid === null ? undefined : model.alike.get(verdict.pid);
        const isLast = alike && own[i + 1]?.pid !== verdict.pid;
        const head = verdict.pid === null || own[i - 1]?.pid === verdict.pid ? undefined : model.heads.get(verdict.pid);
        return [
          head && <p key={`head ${i}`} class="process-head">{head}</p>,
          <One key={i} {...properties} verdict={verdict} number={`${i}`} />,
          isLast && <AlikeRow key={`alike ${i}`} {...properties} alike={alike} verdicts={folded.get(alike.pid) ?? []} />,
        ];
      })}
      {shown.length < own.length && (
        <button type="button" class="link rest" onClick={() => setAll(true)}>{own.length - shown.length} more</button>
      )}
      {model.rest && <p class="others">{model.rest}</p>}
    </section>
  );
}

function foldedVerdicts(model: Model): { own: Verdict[]; folded: Map<number, Verdict[]> } {
  const namedBy = new Map<number, number>();
  for (const { pid, pids } of model.alike.values()) for (const each of pids) namedBy.set(each, pid);
  const own: Verdict[] = [], folded = new Map<number, Verdict[]>();
  for (const verdict of model.report.verdicts) {
    const by = verdict.pid === null ? undefined : namedBy.get(verdict.pid), list = by === undefined ? own : folded.get(by);
    if (list) list.push(verdict);
    else folded.set(by as number, [verdict]);
  }
  return { own: byProcess(own), folded };
}

// As the text has them: those of one process together, where its first one stands.
function byProcess(verdicts: Verdict[]): Verdict[] {
  const groups = new Map<number | null, Verdict[]>();
  for (const verdict of verdicts) groups.set(verdict.pid, [...(groups.get(verdict.pid) ?? []), verdict]);
  return [...groups.values()].flat();
}
