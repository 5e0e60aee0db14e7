import { type ComponentChild, options, render } from "preact";
import { App } from "./app";
import { type Header, Model, unpacked } from "./data";
import { DiffApp } from "./diff_app";
import { type DiffHeader, DiffModel } from "./diff_data";
import { JobApp } from "./job_app";
import { type JobHeader, JobModel } from "./job_data";
import "uplot/dist/uPlot.min.css";
import "./style.css";

// A printer does not wait: what changes for it is drawn at once, as wide as its page.
function preparePrinting(): void {
  const { classList } = document.documentElement;
  const usual = options.debounceRendering;
  window.addEventListener("beforeprint", () => {
    classList.add("printing");
    options.debounceRendering = (draw) => draw();
  });
  window.addEventListener("afterprint", () => {
    classList.remove("printing");
    options.debounceRendering = usual;
  });
}

interface Page {
  title: string;
  content: ComponentChild;
}

function reportPage(header: Header, bytes: Uint8Array): Page {
  const model = new Model(header, bytes), { command, path } = model.report.recording;
  return { title: (command.join(" ") || path).slice(0, 100), content: <App model={model} /> };
}

function diffPage(header: DiffHeader, bytes: Uint8Array): Page {
  const model = new DiffModel(header, bytes), { a, b } = model.diff;
  return { title: `${a.path.slice(0, 100)} and ${b.path.slice(0, 100)}`, content: <DiffApp model={model} /> };
}

function jobPage(header: JobHeader, bytes: Uint8Array): Page {
  const model = new JobModel(header, bytes), { jobs, path } = model.job;
  return { title: jobs.length > 0 ? `job ${jobs.join(", ").slice(0, 100)}` : path.slice(0, 100), content: <JobApp model={model} /> };
}

function pageOf(header: { kind?: string }, bytes: Uint8Array): Page {
  if (header.kind === "job") return jobPage(header as JobHeader, bytes);
  if (header.kind === "diff") return diffPage(header as DiffHeader, bytes);
  return reportPage(header as Header, bytes);
}

async function main(): Promise<void> {
  const root = document.getElementById("page") as HTMLElement;
  try {
    const { header, bytes } = await unpacked(document.getElementById("data")?.textContent ?? "");
    const page = pageOf(header, bytes);
    document.title = `whyrss: ${page.title}`;
    root.textContent = "";
    preparePrinting();
    render(page.content, root);
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("drawn")));
  } catch (error) {
    root.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : error}. Browsers from 2023 on can (Chrome 80, Firefox 113, Safari 16.4).`;
  }
}

void main();
