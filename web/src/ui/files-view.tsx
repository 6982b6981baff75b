import { useEffect, useRef } from 'preact/hooks';
import { other, panes, side, type Pane, type Side } from '../state/pane';
import { places, placesKnown } from '../state/places';
import { t } from '../state/settings';
import { FileList, focusList } from './file-list';
import { PaneBar } from './pane-bar';
import { PaneActions, PaneStatus } from './pane-actions';
import { Queue } from './queue';

const SIDES: readonly Side[] = ['left', 'right'];

/** Opens the directory of the last visit, or else the first place. */
function beginPane(pane: Pane): void {
  if (pane.root === null) pane.open(places.peek()[0]?.name ?? null, []);
  else if (pane.rows.peek().length === 0) void pane.reload();
}

export function FilesView() {
  const after = useRef<HTMLElement>(null);
  useEffect(() => {
    if (placesKnown.value) for (const name of SIDES) beginPane(panes[name]);
  }, [placesKnown.value]);
  return (
    <div class="files">
      <div class="sides" role="group" aria-label={t('pane.choose')}>
        {SIDES.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={side.value === name}
            onClick={() => { side.value = name; }}
          >
            {t(`pane.${name}`)}
          </button>
        ))}
      </div>
      <div class="panes">
        {SIDES.map((name) => (
          <section
            key={name}
            class={side.value === name ? 'pane current' : 'pane'}
            aria-label={t(`pane.${name}`)}
            onFocusIn={() => { side.value = name; }}
          >
            <PaneBar pane={panes[name]} />
            <FileList
              pane={panes[name]}
              onOther={() => { focusList(other(name)); }}
              onPast={() => after.current?.focus()}
            />
            <PaneStatus pane={panes[name]} />
            <PaneActions pane={panes[name]} />
          </section>
        ))}
      </div>
      <section ref={after} class="strip" tabIndex={-1} aria-label={t('jobs.queue')}>
        <h2>{t('jobs.queue')}</h2>
        <Queue height={150} />
      </section>
    </div>
  );
}
