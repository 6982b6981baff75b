import { useEffect } from 'preact/hooks';
import type { Job } from '../api/types';
import { useWindow } from './use-window';
import { JobRow } from './job-row';

const ROW_HEIGHT = 88;
/** Distance from the end, in rows, at which further jobs are loaded. */
const NEAR_END = 10;

interface Props {
  label: string;
  jobs: readonly Job[];
  current: number | null;
  /** Maximum height in pixels; undefined to fill the available space. */
  height?: number;
  onNearEnd?: () => void;
}

/** List of jobs. Only those in view are in the document. */
export function JobList({ label, jobs, current, height, onNearEnd }: Props) {
  const { element, view, onScroll } = useWindow(ROW_HEIGHT, jobs.length);
  useEffect(() => {
    if (view.end + NEAR_END >= jobs.length) onNearEnd?.();
  }, [view.end, jobs.length]);
  return (
    <div
      ref={element}
      class="jobs"
      style={height === undefined ? {} : { height: `${String(Math.min(height, jobs.length * ROW_HEIGHT))}px` }}
      onScroll={onScroll}
      role="group"
      aria-label={label}
      tabIndex={0}
    >
      <ul style={{ height: `${String(jobs.length * ROW_HEIGHT)}px` }}>
        {jobs.slice(view.start, view.end).map((job, index) => (
          <JobRow
            key={job.id}
            job={job}
            current={job.id === current}
            top={(view.start + index) * ROW_HEIGHT}
            position={view.start + index + 1}
            of={jobs.length}
          />
        ))}
      </ul>
    </div>
  );
}
