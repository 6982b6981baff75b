// Session of this page with the agent.

import { signal } from '@preact/signals';
import { api, ApiError, whenSignedOut } from '../api/client';
import { startFeed, stopFeed } from './jobs';
import { loadPlaces } from './places';

export type SessionState = 'starting' | 'in' | 'out' | 'away';

const RETRY_MS = 2000;

export const session = signal<SessionState>('starting');
/** True if the ticket that the page was opened with was refused. */
export const ticketRefused = signal(false);

let retry = 0;

async function begin(ticket: string | null): Promise<void> {
  window.clearTimeout(retry);
  try {
    if (ticket !== null) await api.signIn(ticket);
    await api.agent();
  } catch (error) {
    if (error instanceof ApiError && error.status !== 0 && error.status < 500) {
      // A refused ticket does not matter while an earlier session is valid.
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

// The user may have signed in in another tab.
window.addEventListener('focus', () => {
  if (session.value === 'out') void begin(null);
});

function signedOut(): void {
  stopFeed();
  session.value = 'out';
}

export function signIn(ticket: string | null): Promise<void> {
  // Another tab may sign in at any time, so a 401 ends only the current activity.
  whenSignedOut(() => {
    if (session.value === 'in') signedOut();
  });
  return begin(ticket);
}
