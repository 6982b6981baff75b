// Whether the agent answers this page.

import { signal } from '@preact/signals';
import { api, ApiError, whenSignedOut } from '../api/client';
import { startFeed, stopFeed } from './jobs';
import { loadPlaces } from './places';

export type SessionState = 'starting' | 'in' | 'out' | 'away';

const RETRY_MS = 2000;

export const session = signal<SessionState>('starting');
/** The ticket that the page was opened with was refused. */
export const ticketRefused = signal(false);

let retry = 0;

async function begin(ticket: string | null): Promise<void> {
  window.clearTimeout(retry);
  try {
    if (ticket !== null) await api.signIn(ticket);
    await api.agent();
  } catch (error) {
    if (error instanceof ApiError && error.status !== 0 && error.status < 500) {
      // A refused ticket does not matter where an earlier one still holds.
      if (ticket !== null) {
        ticketRefused.value = true;
        return begin(null);
      }
      signedOut();
      return;
    }
    session.value = 'away';
    retry = window.setTimeout(() => void begin(ticket), RETRY_MS);
    return;
  }
  ticketRefused.value = false;
  session.value = 'in';
  startFeed();
  void loadPlaces();
}

// Somebody who signed in by another tab comes back to this one.
window.addEventListener('focus', () => {
  if (session.value === 'out') void begin(null);
});

function signedOut(): void {
  stopFeed();
  session.value = 'out';
}

export function signIn(ticket: string | null): Promise<void> {
  // A second tab of the same program may have signed in meanwhile, so 401 ends only what is going on.
  whenSignedOut(() => {
    if (session.value === 'in') signedOut();
  });
  return begin(ticket);
}
