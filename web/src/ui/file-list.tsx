import { useSignal } from '@preact/signals';
import { useLayoutEffect } from 'preact/hooks';
import type { SortKey } from '../model/listing';
import { click } from '../model/selection';
import { rowsPerPage, scrollTo } from '../model/virtual';
import { askCopy } from '../state/dialogs';
import { panes, side, type Pane, type Side } from '../state/pane';
import { placeNamed } from '../state/places';
import { t } from '../state/settings';
import { FileRow } from './file-row';
import { onListKey } from './list-keys';
import { useWindow } from './use-window';

const ROW_HEIGHT = 28;
const HEADER_HEIGHT = 30;
const COLUMNS: readonly SortKey[] = ['name', 'size', 'modified'];

/** Pane in which a drag began. Drags from elsewhere are ignored. */
let draggedFrom: Pane | null = null;

export function focusList(of: Side): void {
  side.value = of;
  // On narrow screens the other list appears only in the next frame.
  window.requestAnimationFrame(() => document.getElementById(`list-${of}`)?.focus());
}

interface Props {
  pane: Pane;
  onOther: () => void;
  onPast: () => void;
}

/**
 * Entries of a directory. Only the rows in view are in the document, so there may be any number.
 */
export function FileList({ pane, onOther, onPast }: Props) {
  const rows = pane.rows.value;
  const selection = pane.selection.value;
  const { element, view, height, onScroll } = useWindow(ROW_HEIGHT, rows.length);
  /** Target of a drop: a directory, or the pane itself (the empty name). */
  const target = useSignal<string | null>(null);
  const cursorRow = selection.cursor === null ? -1 : pane.names.value.indexOf(selection.cursor);
  const hasCursor = cursorRow >= 0;

  // Runs when the cursor moves, and when its row arrives.
  useLayoutEffect(() => {
    const list = element.current;
    if (!list || !hasCursor) return;
    list.scrollTop = scrollTo(cursorRow, list.scrollTop, list.clientHeight, ROW_HEIGHT, HEADER_HEIGHT);
    // Does not depend on the row's number, which changes when others arrive before it.
  }, [selection.cursor, hasCursor]);

  const accepts = (): boolean => draggedFrom !== null && draggedFrom !== pane;
  const location = pane.location();
  const place = placeNamed(pane.place.value);

  return (
    <div
      id={`list-${pane.side}`}
      ref={element}
      class={target.value === '' ? 'list drop' : 'list'}
      role="grid"
      tabIndex={0}
      aria-label={t('pane.files', { location: place === undefined ? '' : location })}
      aria-multiselectable="true"
      aria-rowcount={rows.length + 1}
      aria-busy={pane.loading.value}
      aria-activedescendant={
        cursorRow >= view.start && cursorRow < view.end ? `row-${pane.side}-${String(cursorRow)}` : undefined
      }
      onScroll={onScroll}
      onKeyDown={(event) => {
        onListKey(event, pane, { page: rowsPerPage(height - HEADER_HEIGHT, ROW_HEIGHT), onOther, onPast });
      }}
      onDragOver={(event) => {
        if (!accepts()) return;
        event.preventDefault();
        target.value ??= '';
      }}
      onDragLeave={(event) => {
        const to = event.relatedTarget;
        if (!(to instanceof Node) || !event.currentTarget.contains(to)) target.value = null;
      }}
      onDrop={(event) => {
        event.preventDefault();
        const from = draggedFrom;
        if (from !== null && accepts()) askCopy(from, target.value === '' ? undefined : (target.value ?? undefined));
        target.value = null;
      }}
    >
      <div role="rowgroup" class="list-head">
        <div role="row" class="row" aria-rowindex={1}>
          {COLUMNS.map((key) => (
            <Heading key={key} pane={pane} column={key} />
          ))}
        </div>
      </div>
      <div role="rowgroup" class="list-body" style={{ height: `${String(rows.length * ROW_HEIGHT)}px` }}>
        {rows.slice(view.start, view.end).map((row, index) => {
          const number = view.start + index;
          const { name, kind } = row.entry;
          return (
            <FileRow
              key={name}
              id={`row-${pane.side}-${String(number)}`}
              entry={row.entry}
              number={number}
              top={number * ROW_HEIGHT}
              selected={selection.names.has(name)}
              cursor={number === cursorRow}
              target={target.value === name}
              onClick={(event) => {
                pane.selection.value = click(pane.selection.value, pane.names.value, name, {
                  range: event.shiftKey,
                  keep: event.ctrlKey || event.metaKey,
                });
              }}
              onOpen={() => { pane.enter(name); }}
              onDragStart={(event) => {
                if (!pane.selection.value.names.has(name)) {
                  pane.selection.value = { names: new Set([name]), cursor: name, anchor: name };
                }
                draggedFrom = pane;
                event.dataTransfer?.setData('text/plain', pane.location(name));
                if (event.dataTransfer) event.dataTransfer.effectAllowed = 'copy';
              }}
              onDragEnd={() => {
                draggedFrom = null;
                for (const each of Object.values(panes)) if (each === pane) target.value = null;
              }}
              onDragEnter={() => {
                if (accepts()) target.value = kind === 'directory' ? name : '';
              }}
            />
          );
        })}
      </div>
      {rows.length === 0 && <Empty pane={pane} />}
    </div>
  );
}

function Empty({ pane }: { pane: Pane }) {
  if (pane.loading.value || pane.error.value !== null || placeNamed(pane.place.value) === undefined) return null;
  return <p class="list-empty">{t(pane.total.value === 0 ? 'pane.empty' : 'pane.nothing')}</p>;
}

function Heading({ pane, column }: { pane: Pane; column: SortKey }) {
  const { key, descending } = pane.view.value.sort;
  const sorted = key === column;
  return (
    <div
      role="columnheader"
      class={`cell ${column}`}
      aria-sort={sorted ? (descending ? 'descending' : 'ascending') : 'none'}
    >
      <button type="button" onClick={() => { pane.sortBy(column); }}>
        {t(`pane.${column}`)}
        <span aria-hidden="true">{sorted ? (descending ? ' ▼' : ' ▲') : ''}</span>
      </button>
    </div>
  );
}
