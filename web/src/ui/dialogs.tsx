import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { api } from '../api/client';
import { isEntryName } from '../model/location';
import { closeDialog, dialog } from '../state/dialogs';
import { submit } from '../state/jobs';
import { complain, errorText, notify } from '../state/messages';
import { panes, type Pane } from '../state/pane';
import { loadPlaces } from '../state/places';
import { count, t, tn } from '../state/settings';
import { Check } from './check';
import { Help } from './help';
import { Modal } from './modal';
import { Name } from './name';

/** Maximum number of names that a dialog lists. Of further ones it shows the count. */
const MAX_NAMES = 20;

export function Dialogs() {
  const open = dialog.value;
  switch (open?.kind) {
    case undefined:
      return null;
    case 'help':
      return <Help />;
    case 'mkdir':
      return <MakeDirectory pane={open.pane} />;
    case 'rename':
      return <Rename pane={open.pane} name={open.name} />;
    case 'remove':
      return <Remove pane={open.pane} names={open.names} />;
    case 'copy':
      return <Copy sources={open.sources} into={open.into} />;
    case 'removePlace':
      return <RemovePlace name={open.name} />;
  }
}

/** Reloads all panes that show the changed directory. */
function reloadAll(changed: Pane): void {
  const at = changed.location();
  for (const pane of Object.values(panes)) if (pane.location() === at) void pane.reload();
}

function Names({ names }: { names: readonly string[] }) {
  return (
    <ul class="names">
      {names.slice(0, MAX_NAMES).map((name) => (
        <li key={name}>
          <Name text={name} />
        </li>
      ))}
      {names.length > MAX_NAMES && <li>{t('names.more', { number: count(names.length - MAX_NAMES) })}</li>}
    </ul>
  );
}

interface NameFieldProps {
  name: string;
  error: string | null;
  onName: (name: string) => void;
}

function NameField({ name, error, onName }: NameFieldProps) {
  const opened = useRef(false);
  return (
    <>
      <label class="field">
        {t('name.label')}
        <input
          value={name}
          autoFocus
          autoComplete="off"
          spellcheck={false}
          aria-invalid={error !== null}
          aria-describedby="name-error"
          onFocus={(event) => {
            // Selects the name without its ending, once, before anything can be typed.
            if (opened.current) return;
            opened.current = true;
            const dot = name.lastIndexOf('.');
            event.currentTarget.setSelectionRange(0, dot > 0 ? dot : name.length);
          }}
          onInput={(event) => { onName(event.currentTarget.value); }}
        />
      </label>
      <p id="name-error" class="fault" role="alert">
        {error}
      </p>
    </>
  );
}

function MakeDirectory({ pane }: { pane: Pane }) {
  const name = useSignal('');
  const error = useSignal<string | null>(null);
  const busy = useSignal(false);
  const accept = async (): Promise<void> => {
    if (!isEntryName(name.value)) {
      error.value = t('name.invalid');
      return;
    }
    busy.value = true;
    try {
      await api.mkdir(pane.location(name.value));
      pane.selection.value = { names: new Set([name.value]), cursor: name.value, anchor: name.value };
      reloadAll(pane);
      closeDialog();
    } catch (fault) {
      error.value = errorText(fault);
    }
    busy.value = false;
  };
  return (
    <Modal title={t('mkdir.title')} action={t('mkdir.do')} busy={busy.value} onAccept={() => void accept()}>
      <NameField name={name.value} error={error.value} onName={(value) => { name.value = value; }} />
    </Modal>
  );
}

function Rename({ pane, name }: { pane: Pane; name: string }) {
  const to = useSignal(name);
  const overwrite = useSignal(false);
  const error = useSignal<string | null>(null);
  const busy = useSignal(false);
  const accept = async (): Promise<void> => {
    if (to.value === name) {
      closeDialog();
      return;
    }
    if (!isEntryName(to.value)) {
      error.value = t('name.invalid');
      return;
    }
    busy.value = true;
    try {
      await api.rename(pane.location(name), pane.location(to.value), overwrite.value);
      pane.selection.value = { names: new Set([to.value]), cursor: to.value, anchor: to.value };
      reloadAll(pane);
      closeDialog();
    } catch (fault) {
      error.value = errorText(fault);
    }
    busy.value = false;
  };
  return (
    <Modal title={t('rename.title', { name })} action={t('rename.do')} busy={busy.value} onAccept={() => void accept()}>
      <NameField name={to.value} error={error.value} onName={(value) => { to.value = value; }} />
      <Check checked={overwrite.value} onCheck={(checked) => { overwrite.value = checked; }}>
        {t('rename.overwrite')}
      </Check>
    </Modal>
  );
}

function Remove({ pane, names }: { pane: Pane; names: string[] }) {
  const done = useSignal<number | null>(null);
  const error = useSignal<string | null>(null);
  const accept = async (): Promise<void> => {
    error.value = null;
    // Uses the current directory, even if the pane shows another one later.
    const targets = names.map((name) => ({ name, at: pane.location(name) }));
    let removed = 0;
    for (const { name, at } of targets) {
      done.value = removed;
      // Stops if the dialog was closed meanwhile.
      if (dialog.value?.kind !== 'remove') break;
      try {
        await api.remove(at, true);
        removed += 1;
      } catch (fault) {
        complain(t('remove.stopped', { name, detail: errorText(fault) }));
        break;
      }
    }
    if (removed > 0) notify(tn('remove.done', removed));
    if (dialog.value?.kind === 'remove') closeDialog();
    reloadAll(pane);
  };
  return (
    <Modal
      title={tn('remove.title', names.length)}
      action={t('remove.do')}
      danger
      busy={done.value !== null}
      onAccept={() => void accept()}
    >
      <Names names={names} />
      <p>{t('remove.text')}</p>
      {done.value !== null && (
        <p role="status">{t('remove.running', { done: count(done.value), number: count(names.length) })}</p>
      )}
    </Modal>
  );
}

function Copy({ sources, into }: { sources: string[]; into: string }) {
  const overwrite = useSignal(false);
  const checksum = useSignal(false);
  const label = useSignal('');
  const busy = useSignal(false);
  const error = useSignal<string | null>(null);
  const accept = async (): Promise<void> => {
    busy.value = true;
    try {
      const job = await submit({
        sources,
        destination: into,
        options: { recursive: true, overwrite: overwrite.value, checksum: checksum.value },
        priority: 0,
        ...(label.value.trim() === '' ? {} : { label: label.value.trim() }),
      });
      notify(t('copy.submitted', { id: job.id }));
      closeDialog();
    } catch (fault) {
      error.value = errorText(fault);
    }
    busy.value = false;
  };
  return (
    <Modal
      title={tn('copy.title', sources.length)}
      action={t('copy.do')}
      busy={busy.value}
      onAccept={() => void accept()}
    >
      <p class="caption">{t('copy.from')}</p>
      <Names names={sources} />
      <p class="caption">{t('copy.to')}</p>
      <p class="path">
        <Name text={into} />
      </p>
      <Check checked={overwrite.value} onCheck={(checked) => { overwrite.value = checked; }}>
        {t('copy.overwrite')}
      </Check>
      <Check checked={checksum.value} onCheck={(checked) => { checksum.value = checked; }}>
        {t('copy.checksum')}
      </Check>
      <label class="field">
        {t('copy.label')}
        <input
          value={label.value}
          maxLength={1000}
          autoComplete="off"
          onInput={(event) => { label.value = event.currentTarget.value; }}
        />
      </label>
      <p class="fault" role="alert">
        {error.value}
      </p>
    </Modal>
  );
}

function RemovePlace({ name }: { name: string }) {
  const accept = async (): Promise<void> => {
    try {
      await api.removePlace(name);
      notify(t('places.removed', { name }));
      closeDialog();
      await loadPlaces();
    } catch (fault) {
      complain(fault);
      closeDialog();
    }
  };
  return (
    <Modal
      title={t('places.removeTitle', { name })}
      action={t('places.remove')}
      danger
      onAccept={() => void accept()}
    >
      <p>{t('places.removeText')}</p>
    </Modal>
  );
}
