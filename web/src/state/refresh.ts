import { whenJobEnds } from './jobs';
import { panes } from './pane';

/** Reloads a pane when a job that copied into its directory ends. */
export function showWhatWasCopied(): void {
  whenJobEnds((job) => {
    for (const pane of Object.values(panes)) {
      if (pane.into() === job.request.destination) void pane.reload();
    }
  });
}
