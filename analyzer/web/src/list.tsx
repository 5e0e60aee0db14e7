// Tables of any length: only the rows in sight are in the document, all of them where a printer asks.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Column<Row> {
  name: string;
  title?: string;
  numeric?: boolean;
  lesser?: boolean; // not on narrow screens
  sort?: (a: Row, b: Row) => number; // what comes first when it is chosen
  cell: (row: Row) => ComponentChildren;
}

interface Properties<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string | number;
  empty: string;
  chosen?: string | number | null;
  onChoose?: (row: Row) => void;
  detail?: (row: Row) => ComponentChildren; // below the chosen row
  sortedBy?: number;
  testid: string;
}

const ROW = 30, NARROW_ROW = 48, AROUND = 12, PRINTED = 60; // pixels: as style.css has them
const NARROW = window.matchMedia("(max-width: 720px)"); // names take two lines there

export function List<Row>(properties: Properties<Row>) {
  const { columns, keyOf, chosen, onChoose, detail, testid } = properties;
  const [sort, setSort] = useState(properties.sortedBy ?? -1);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(420);
  const frame = useRef<HTMLDivElement>(null);
  const printing = usePrinting(), pixels = useNarrow() ? NARROW_ROW : ROW;
  const compare = sort >= 0 ? columns[sort]?.sort : undefined;
  const rows = compare ? [...properties.rows].sort(compare) : properties.rows;
  useEffect(() => {
    if (frame.current) setHeight(frame.current.clientHeight);
  }, [rows.length]);

  const first = printing ? 0 : Math.max(0, Math.floor(top / pixels) - AROUND);
  const last = printing ? Math.min(rows.length, PRINTED) : Math.min(rows.length, first + Math.ceil(height / pixels) + 2 * AROUND);
  const shown = rows.slice(first, last);
  return (
    <div class="list" ref={frame} data-testid={testid} tabIndex={0} role="region" aria-label={`Table of ${properties.label}`}
      onScroll={(event) => setTop((event.target as HTMLElement).scrollTop)}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map((column, i) => (
              <th key={column.name} scope="col" class={classes(column)} title={column.title}
                aria-sort={sort === i ? "descending" : undefined}>
                {column.sort && !printing ? ( // no button is drawn again on the next page
                  <button type="button" class={sort === i ? "sort on" : "sort"} onClick={() => setSort(i)}>{column.name}</button>
                ) : column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="space"><td colSpan={columns.length} style={{ height: `${first * pixels}px` }} /></tr>}
          {shown.map((row, i) => {
            const key = keyOf(row), on = chosen !== undefined && chosen === key;
            return [
              <tr key={key} class={on ? "chosen" : onChoose ? "choice" : ""} aria-rowindex={first + i + 2}
                onClick={onChoose && (() => onChoose(row))}>
                {columns.map((column) => <td key={column.name} class={classes(column)}>{column.cell(row)}</td>)}
              </tr>,
              on && detail && <tr key={`${key} detail`} class="detail"><td colSpan={columns.length}>{detail(row)}</td></tr>,
            ];
          })}
          {last < rows.length && !printing && (
            <tr class="space"><td colSpan={columns.length} style={{ height: `${(rows.length - last) * pixels}px` }} /></tr>
          )}
        </tbody>
      </table>
      {rows.length === 0 && <p class="empty">{properties.empty}</p>}
      {printing && rows.length > PRINTED && <p class="empty">{rows.length - PRINTED} more rows are not printed.</p>}
    </div>
  );
}

function classes<Row>(column: Column<Row>): string {
  return `${column.numeric ? "number" : ""} ${column.lesser ? "lesser" : ""}`.trim();
}

export function usePrinting(): boolean {
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    const begin = () => setPrinting(true), end = () => setPrinting(false);
    window.addEventListener("beforeprint", begin);
    window.addEventListener("afterprint", end);
    return () => {
      window.removeEventListener("beforeprint", begin);
      window.removeEventListener("afterprint", end);
    };
  }, []);
  return printing;
}

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return narrow;
}
