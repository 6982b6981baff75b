import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { closeDialog } from '../state/dialogs';
import { t } from '../state/settings';

interface Props {
  title: string;
  /** Label of the confirming button. Without it, there is only a button that closes. */
  action?: string;
  danger?: boolean;
  busy?: boolean;
  onAccept?: () => void;
  children: ComponentChildren;
}

/** Modal dialog. The browser keeps the focus in it, and Escape closes it. */
export function Modal({ title, action, danger = false, busy = false, onAccept, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    const opened = element.current;
    opened?.showModal();
    return () => {
      // Closed first, because nothing outside an open modal dialog can take the focus.
      opened?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        // The next render removes the dialog, not the browser.
        event.preventDefault();
        closeDialog();
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (busy) return;
          if (onAccept) onAccept();
          else closeDialog();
        }}
      >
        <h2 id="dialog-title">{title}</h2>
        {children}
        <div class="buttons">
          {action !== undefined && (
            <button type="submit" class={danger ? 'danger' : 'primary'} disabled={busy}>
              {action}
            </button>
          )}
          <button type={action === undefined ? 'submit' : 'button'} onClick={closeDialog}>
            {action === undefined ? t('button.close') : t('button.cancel')}
          </button>
        </div>
      </form>
    </dialog>
  );
}
