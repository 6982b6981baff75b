import { useComputed } from '@preact/signals';
import { MAX_ENTRIES } from '../model/listing';
import { askCopy, askMkdir, askRemove, askRename, dialog } from '../state/dialogs';
import type { Pane } from '../state/pane';
import { count, size, t, tn } from '../state/settings';

/** Toolbar with the actions of the selection. */
export function PaneActions({ pane }: { pane: Pane }) {
  const nothing = pane.selection.value.names.size === 0 && pane.selection.value.cursor === null;
  return (
    <div class="actions" role="toolbar" aria-label={t('pane.actions')}>
      <button type="button" disabled={nothing} aria-keyshortcuts="F5" onClick={() => { askCopy(pane); }}>
        {t('pane.copy')} <kbd>F5</kbd>
      </button>
      <button type="button" disabled={nothing} aria-keyshortcuts="F2" onClick={() => { askRename(pane); }}>
        {t('pane.rename')} <kbd>F2</kbd>
      </button>
      <button type="button" aria-keyshortcuts="F7" onClick={() => { askMkdir(pane); }}>
        {t('pane.mkdir')} <kbd>F7</kbd>
      </button>
      <button type="button" disabled={nothing} aria-keyshortcuts="Delete" onClick={() => { askRemove(pane); }}>
        {t('pane.remove')} <kbd>Del</kbd>
      </button>
      <button type="button" onClick={() => { dialog.value = { kind: 'help' }; }}>
        {t('help.open')}
      </button>
    </div>
  );
}

/** Number of entries, and of selected ones. */
export function PaneStatus({ pane }: { pane: Pane }) {
  const shown = pane.rows.value.length;
  const total = pane.total.value;
  const selected = useComputed(() => {
    const { names } = pane.selection.value;
    let bytes = 0;
    let number = 0;
    if (names.size === 0) return { bytes, number };
    for (const { entry } of pane.rows.value) {
      if (!names.has(entry.name)) continue;
      number += 1;
      if (entry.kind === 'file') bytes += entry.bytes;
    }
    return { bytes, number };
  });
  const { bytes, number } = selected.value;
  return (
    <p class="pane-status">
      {pane.error.value !== null ? (
        <span class="fault" role="alert">
          {pane.error.value}
        </span>
      ) : (
        <>
          {shown === total
            ? tn('pane.count', total, { shown: count(shown) })
            : t('pane.ofAll', { shown: count(shown), total: count(total) })}
          {number > 0 && <> · {t('pane.selected', { number: count(number), size: size(bytes) })}</>}
          {pane.loading.value && <> · {t('pane.loading')}</>}
          {pane.cut.value && <> · {t('pane.cut', { limit: count(MAX_ENTRIES) })}</>}
        </>
      )}
    </p>
  );
}
