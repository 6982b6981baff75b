import { whenJobEnds } from './jobs';
import { panes } from './pane';

/** Has a pane show what was copied into its directory, as soon as the job has ended. */
export function showWhatWasCopied(): void {
  whenJobEnds((job) => {
    for (const pane of Object.values(panes)) {
      if (pane.into() === job.request.destination) void pane.reload();
    }
  });
}
