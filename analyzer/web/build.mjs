// Makes dist/report.html, the page without data: node build.mjs [OUTPUT]
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx"],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "ascii",
  legalComments: "none", // whole licences are put in below
  outdir: "dist",
  write: false,
});
const output = (ending) => result.outputFiles.find((file) => file.path.endsWith(ending)).text.trim();
const script = output(".js"), style = output(".css");
if (script.includes("</script") || style.includes("</style")) throw new Error("the page would end in the middle of a script");

// Nothing but this script and this style may run, whatever a recording says; nothing is asked of any network.
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`;
const licences = ["preact", "uplot"].map((name) => {
  const { version } = JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));
  return `${name} ${version}\n\n${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim()}`;
}).join("\n\n\n").replaceAll("--", "- -");
const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>whyrss</title>
<style>${style}</style>
</head>
<body>
<div id="page"><p class="loading">Reading the recording …</p></div>
<noscript><p class="loading">This page needs JavaScript, which it brings along. Without it: whyrss report DIR.</p></noscript>
<!--DATA-->
<script>${script}</script>
<!--
whyrss is licensed under the Apache License 2.0. This page holds these libraries:

${licences}
-->
</body>
</html>
`;
writeFileSync(process.argv[2] ?? join(here, "dist/report.html"), page);
