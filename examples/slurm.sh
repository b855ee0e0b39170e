#!/bin/bash
# Train under Slurm:
#
#     sbatch examples/slurm.sh cc3m 'data.train=/data/cc3m/*.tar' --out /shared/runs/cc3m
#
# One task per GPU; Slurm's variables tell each task which rank it is. Two minutes before the time is up, and when the job
# is preempted, the ranks are asked to stop: they save, leave with code 75, and the job goes back into the queue. So does
# a job of which a rank was killed. Started again, it goes on from its last checkpoint.
#SBATCH --job-name=goldiclip
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.txt

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT OMP_NUM_THREADS=1

srun --kill-on-bad-exit=1 goldiclip train "$@" --requeue
code=$?
if { [ $code -eq 75 ] || [ $code -ge 128 ]; } && [ "${SLURM_RESTART_COUNT:-0}" -lt 50 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
