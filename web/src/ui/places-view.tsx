import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { api } from '../api/client';
import type { Place, PlaceTest } from '../api/types';
import { asRoot, fitsKind, placeKind, type PlaceKind } from '../model/location';
import { dialog } from '../state/dialogs';
import { errorText, notify } from '../state/messages';
import { loadPlaces, placeNamed, places } from '../state/places';
import { t } from '../state/settings';
import { Name } from './name';

const KINDS: readonly PlaceKind[] = ['ssh', 'server', 'local'];

export function PlacesView() {
  const changed = useSignal<Place | null>(null);
  return (
    <div class="page wide">
      <h2 id="places-title">{t('places.title')}</h2>
      {/* Explicit roles, because narrow screens show the table as blocks, which removes them. */}
      <table class="places" role="table" aria-labelledby="places-title">
        <thead role="rowgroup">
          <tr role="row">
            <th scope="col" role="columnheader">{t('places.name')}</th>
            <th scope="col" role="columnheader">{t('places.kind')}</th>
            <th scope="col" role="columnheader">{t('places.location')}</th>
            <th scope="col" role="columnheader">{t('places.actions')}</th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {places.value.map((place) => (
            <PlaceRow key={place.name} place={place} change={() => { changed.value = place; }} />
          ))}
        </tbody>
      </table>
      <PlaceForm key={changed.value?.name ?? ''} changed={changed.value} done={() => { changed.value = null; }} />
    </div>
  );
}

type Outcome = 'testing' | PlaceTest | null;

function PlaceRow({ place, change }: { place: Place; change: () => void }) {
  const outcome = useSignal<Outcome>(null);
  const test = async (): Promise<void> => {
    outcome.value = 'testing';
    try {
      outcome.value = await api.testPlace(place.name);
    } catch (error) {
      outcome.value = { ok: false, detail: errorText(error) };
    }
  };
  return (
    <tr role="row">
      <th scope="row" role="rowheader">
        <Name text={place.name} />
      </th>
      <td role="cell">
        {t(`places.kind.${placeKind(place.root)}`)}
        {place.builtin && ` (${t('places.builtin')})`}
      </td>
      <td role="cell">
        <Name text={place.root} />
      </td>
      <td role="cell">
        <div class="place-actions">
          <button
            type="button"
            aria-label={t('places.testOf', { name: place.name })}
            disabled={outcome.value === 'testing'}
            onClick={() => void test()}
          >
            {t('places.test')}
          </button>
          {!place.builtin && (
            <>
              <button type="button" aria-label={t('places.changeOf', { name: place.name })} onClick={change}>
                {t('places.change')}
              </button>
              <button
                type="button"
                aria-label={t('places.removeOf', { name: place.name })}
                onClick={() => { dialog.value = { kind: 'removePlace', name: place.name }; }}
              >
                {t('places.remove')}
              </button>
            </>
          )}
        </div>
        <p class="outcome" role="status">
          <OutcomeText outcome={outcome.value} />
        </p>
      </td>
    </tr>
  );
}

function OutcomeText({ outcome }: { outcome: Outcome }) {
  if (outcome === null) return null;
  if (outcome === 'testing') return <>{t('places.testing')}</>;
  return (
    <>
      <strong class={outcome.ok ? 'good' : 'fault'}>{t(outcome.ok ? 'places.ok' : 'places.notOk')}</strong>
      {outcome.detail !== '' && (
        <>
          {': '}
          <Name text={outcome.detail} />
        </>
      )}
    </>
  );
}

/**
 * Form that adds a place, or changes the location of an existing one (`changed`). The name stays,
 * because jobs and panes refer to it.
 */
function PlaceForm({ changed, done }: { changed: Place | null; done: () => void }) {
  const name = useSignal(changed?.name ?? '');
  const kind = useSignal<PlaceKind>(changed === null ? 'ssh' : placeKind(changed.root));
  const root = useSignal(changed?.root ?? '');
  const error = useSignal<string | null>(null);
  const busy = useSignal(false);
  const location = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (changed !== null) location.current?.focus();
  }, [changed]);
  const save = async (): Promise<void> => {
    const wanted = name.value.trim();
    error.value = null;
    if (wanted === '') error.value = t('places.invalidName');
    // Adding must not replace an existing place, as PUT would.
    else if (changed === null && placeNamed(wanted)) error.value = t('places.exists');
    else if (!fitsKind(root.value.trim(), kind.value)) error.value = t(`places.invalid.${kind.value}`);
    if (error.value !== null || busy.value) return;
    busy.value = true;
    try {
      await api.putPlace(wanted, asRoot(root.value));
      notify(t(changed === null ? 'places.added' : 'places.changed', { name: wanted }));
      name.value = '';
      root.value = '';
      await loadPlaces();
      done();
    } catch (fault) {
      error.value = errorText(fault);
    }
    busy.value = false;
  };
  return (
    <form
      class="add"
      aria-labelledby="place-title"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <h3 id="place-title">
        {changed === null ? t('places.add') : t('places.changeTitle', { name: changed.name })}
      </h3>
      <label class="field">
        {t('places.name')}
        <input
          value={name.value}
          readOnly={changed !== null}
          autoComplete="off"
          spellcheck={false}
          onInput={(event) => { name.value = event.currentTarget.value; }}
        />
      </label>
      <label class="field">
        {t('places.kind')}
        <select
          value={kind.value}
          onChange={(event) => { kind.value = KINDS.find((one) => one === event.currentTarget.value) ?? 'ssh'; }}
        >
          {KINDS.map((one) => (
            <option key={one} value={one}>
              {t(`places.kind.${one}`)}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        {t('places.location')}
        <input
          ref={location}
          value={root.value}
          autoComplete="off"
          spellcheck={false}
          aria-describedby="root-hint"
          onInput={(event) => { root.value = event.currentTarget.value; }}
        />
      </label>
      <p id="root-hint" class="quiet">
        {t(`places.invalid.${kind.value}`)}
      </p>
      <p class="fault" role="alert">
        {error.value}
      </p>
      <div class="place-actions">
        <button type="submit" class="primary" disabled={busy.value}>
          {t(changed === null ? 'places.save' : 'places.keep')}
        </button>
        {changed !== null && (
          <button type="button" onClick={done}>
            {t('button.cancel')}
          </button>
        )}
      </div>
    </form>
  );
}
