import type { Pane } from '../state/pane';
import { placeNamed, places } from '../state/places';
import { t } from '../state/settings';
import { display } from '../model/display';
import { Check } from './check';
import { Name } from './name';

/** Location of the pane, with its navigation. */
export function PaneBar({ pane }: { pane: Pane }) {
  const { hidden, filter } = pane.view.value;
  const nowhere = placeNamed(pane.place.value) === undefined;
  return (
    <div class="bar">
      <div class="bar-row">
        <select
          aria-label={t('pane.place')}
          value={nowhere ? '' : (pane.place.value ?? '')}
          onChange={(event) => { pane.open(event.currentTarget.value, []); }}
        >
          {nowhere && <option value="">{t('pane.choosePlace')}</option>}
          {places.value.map((place) => (
            <option key={place.name} value={place.name}>
              {display(place.name)}
            </option>
          ))}
        </select>
        <button type="button" disabled={pane.path.value.length === 0} onClick={() => { pane.up(); }}>
          {t('pane.up')}
        </button>
        <button type="button" disabled={nowhere} onClick={() => void pane.reload()}>
          {t('pane.reload')}
        </button>
        <input
          id={`filter-${pane.side}`}
          type="search"
          class="filter"
          placeholder={t('pane.filter')}
          aria-label={t('pane.filter')}
          value={filter}
          onInput={(event) => { pane.filterBy(event.currentTarget.value); }}
        />
        <Check checked={hidden} onCheck={(checked) => { pane.showHidden(checked); }}>
          {t('pane.hidden')}
        </Check>
      </div>
      <Breadcrumbs pane={pane} />
    </div>
  );
}

function Breadcrumbs({ pane }: { pane: Pane }) {
  const path = pane.path.value;
  const place = placeNamed(pane.place.value);
  return (
    <nav class="crumbs" aria-label={`${t('pane.path')}: ${t(`pane.${pane.side}`)}`}>
      <ol>
        {[place?.root ?? '', ...path].map((name, depth) => (
          <li key={depth}>
            {depth === path.length ? (
              <span aria-current="location">
                <Name text={name} />
              </span>
            ) : (
              <button
                type="button"
                class="link"
                onClick={() => { pane.open(pane.place.value, path.slice(0, depth), path[depth] ?? null); }}
              >
                <Name text={name} />
              </button>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}
