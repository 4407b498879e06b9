"""The look of a page: light or dark as the reader has it, on a screen of any width, on paper."""

CSS = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --raised: #f5f6f8; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --good: #116329; --good-ground: #dafbe1; --bad: #a40e26; --bad-ground: #ffebe9;
  --odd: #7d4e00; --odd-ground: #fff8c5; --info: #0a4b9c; --info-ground: #ddf4ff;
  --free: #eaeef2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0d1117; --raised: #161b22; --ink: #e6edf3; --soft: #9da7b3; --line: #30363d;
    --good: #56d364; --good-ground: #0f2e1a; --bad: #ff8182; --bad-ground: #3c1418;
    --odd: #e3b341; --odd-ground: #332701; --info: #79c0ff; --info-ground: #0c2d4d;
    --free: #21262d;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 3rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .75rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
p { margin: .4rem 0; max-width: 62rem; }
.lead, .soft, figcaption, footer { color: var(--soft); }
footer { margin-top: 3rem; font-size: .85rem; }
code, pre, .value { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  font-size: .875em; overflow-wrap: anywhere; }
.verdicts { display: flex; flex-wrap: wrap; gap: .5rem; margin: .9rem 0; padding: 0;
  list-style: none; }
.badge { display: inline-block; border: 1px solid currentColor; border-radius: 999px;
  padding: .1rem .7rem; font-size: .875rem; font-weight: 600; }
.good { color: var(--good); background: var(--good-ground); }
.bad { color: var(--bad); background: var(--bad-ground); }
.odd { color: var(--odd); background: var(--odd-ground); }
.info { color: var(--info); background: var(--info-ground); }
.notes { margin: .5rem 0; padding-left: 1.2rem; }
.message { border-left: 4px solid var(--bad); background: var(--bad-ground); padding: .5rem .8rem;
  margin: .6rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { color: var(--soft); font-size: .8rem; }
tbody th[scope=row] { font-weight: 500; }
table.legend { width: auto; } table.legend th, table.legend td { white-space: nowrap; }
table.legend td:last-child { white-space: normal; }
table.stack th[scope=row] code { white-space: nowrap; }
p.legend span { margin-right: .35rem; vertical-align: middle; }
p.legend > span { display: inline-block; margin-right: 1.25rem; }
td.value { min-width: 5rem; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.group th { background: var(--raised); padding-top: .5rem; }
.chip { display: inline-flex; width: 1.5rem; height: 1.5rem; border-radius: 4px;
  align-items: center; justify-content: center; font: 600 .8rem/1 ui-monospace, monospace;
  border: 1px solid var(--line); print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.mark { font-size: .75rem; font-weight: 700; border-radius: 4px; padding: .05rem .4rem;
  white-space: nowrap; }
tr.silent th[scope=row] { box-shadow: inset 4px 0 0 var(--bad); }
tr.default td, tr.default th { color: var(--soft); }
.source { display: block; color: var(--soft); font-size: .8rem; overflow-wrap: anywhere; }
figure { margin: .75rem 0 1rem; }
figcaption { font-size: .875rem; margin-top: .35rem; }
svg { display: block; width: 100%; overflow: visible; }
svg text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  font-size: 13px; }
svg .axis { fill: var(--soft); font-size: 12px; }
.edge { stroke: var(--ink); stroke-width: 2; }
.frame { fill: none; stroke: var(--soft); }
.free { fill: var(--free); }
.short { fill: var(--bad); }
.over { fill: #ffffff; stroke: #000000; stroke-width: 3px; paint-order: stroke; }
ul.findings { list-style: none; padding: 0; margin: 0; }
ul.findings > li { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem;
  margin: .6rem 0; background: var(--raised); overflow-wrap: anywhere; }
ul.findings p { margin: .25rem 0 0; }
pre { background: var(--raised); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
ins, del { text-decoration: none; display: block; }
ins { color: var(--good); } del { color: var(--bad); }
details { margin: .75rem 0; } summary { cursor: pointer; font-weight: 600; }
dl.facts { display: grid; grid-template-columns: minmax(10rem, max-content) 1fr; gap: .3rem 1rem; }
dl.facts dt { color: var(--soft); } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 46rem) {
  body { padding: 1.25rem .8rem 2rem; }
  table.stack thead { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); }
  table.stack tr, table.stack td, table.stack th { display: block; }
  table.stack tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  table.stack th, table.stack td { border: 0; padding: .12rem .5rem; }
  table.stack td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); }
  table.stack td:empty, table.stack tr.given td[data-label=given] { display: none; }
  table.stack th[scope=row] code, table.legend th, table.legend td { white-space: normal; }
  td.number { text-align: left; white-space: normal; }
  dl.facts { grid-template-columns: 1fr; gap: 0; } dl.facts dd { margin-bottom: .5rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  pre, li, figure, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .badge, .mark, .message { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
