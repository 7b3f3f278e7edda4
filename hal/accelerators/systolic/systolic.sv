// SPDX-License-Identifier: 0BSD
// A systolic array of 8 x 8: pixels of a row go in from the left, output channels from above, sums stay where they are.
// It reads the job (eb_conv2d of eb_engine.h) at the address that starts it. Memory gives it eight activations and
// eight weights a cycle, or one word, and takes eight results.
module Systolic (
  input        clk, reset, start,
  input [31:0] address,
  output       busy
);
  import "DPI-C" function int eb_word(input int address);
  import "DPI-C" function byte eb_byte(input int address);
  import "DPI-C" function void eb_store(input int address, input byte value);

  localparam N = 8, WORDS = 24;
  typedef enum logic [1:0] {IDLE, LOAD, RUN, STORE} state_t;
  state_t state;
  int base, count, oy, ox, k, fy, fx, c, step;
  int job [WORDS];
  // Words of the job, in the order of the struct.
  wire [31:0] x = job[0], y = job[1], weights = job[2], bias = job[3], multiplier = job[4], exponent = job[5];
  int pad_value, y_zero, low, high, height, width, channels, out_height, out_width, out_channels;
  int window_height, window_width, stride_y, stride_x, top, left, steps;
  always_comb begin
    {pad_value, y_zero, low, high} = {job[8], job[9], job[10], job[11]};
    {height, width, channels} = {job[12], job[13], job[14]};
    {out_height, out_width, out_channels} = {job[15], job[16], job[17]};
    {window_height, window_width, stride_y, stride_x, top, left} =
      {job[18], job[19], job[20], job[21], job[22], job[23]};
    steps = window_height * window_width * channels;
  end

  assign busy = state != IDLE;

  // The operands of this step, before the skew: zeros beyond the last step.
  byte pixel [N], weight [N];
  always_comb
    for (int i = 0; i < N; i++) begin
      int iy, ix;
      iy = oy * stride_y - top + fy;
      ix = (ox + i) * stride_x - left + fx;
      pixel[i] = 0;
      weight[i] = 0;
      if (state == RUN && step < steps) begin
        if (ox + i < out_width)
          pixel[i] = iy < 0 || iy >= height || ix < 0 || ix >= width ? pad_value[7:0]
                                                                     : eb_byte(x + (iy * width + ix) * channels + c);
        if (k + i < out_channels) weight[i] = eb_byte(weights + (k + i) * steps + step);
      end
    end

  // Row i and column i of the array get them i cycles later; a cell hands on what it got.
  byte skew_x [N][N], skew_w [N][N], from_left [N][N], from_above [N][N];
  int sum [N][N];
  byte in_x [N][N], in_w [N][N];
  always_comb
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) begin
        in_x[i][j] = j > 0 ? from_left[i][j - 1] : i > 0 ? skew_x[i][i - 1] : pixel[0];
        in_w[i][j] = i > 0 ? from_above[i - 1][j] : j > 0 ? skew_w[j][j - 1] : weight[0];
      end

  // TFLite's two roundings, and the clamp.
  function automatic byte result(input int total, input int channel);
    int factor, places, right, shifted, rounded, mask, value;
    factor = eb_word(multiplier + 4 * channel);
    places = 32'(signed'(eb_byte(exponent + channel)));
    right = places < 0 ? -places : 0;
    shifted = places > 0 ? total << places : total;
    rounded = 32'((64'(signed'(shifted)) * 64'(signed'(factor)) + 64'sd1073741824) >>> 31);
    mask = 32'((33'd1 << right) - 33'd1);
    value = (rounded >>> right) + ((rounded & mask) > (mask >>> 1) + 32'(rounded < 0) ? 1 : 0) + y_zero;
    return 8'(value < low ? low : value > high ? high : value);
  endfunction

  always_ff @(posedge clk) begin
    for (int i = 0; i < N; i++) begin
      for (int j = 0; j < N; j++) begin
        skew_x[i][j] <= j > 0 ? skew_x[i][j - 1] : pixel[i];
        skew_w[i][j] <= j > 0 ? skew_w[i][j - 1] : weight[i];
        from_left[i][j] <= in_x[i][j];
        from_above[i][j] <= in_w[i][j];
        if (state == RUN) sum[i][j] <= sum[i][j] + in_x[i][j] * in_w[i][j];
      end
    end
    case (state)
      IDLE: if (start) begin
        {state, base, count} <= {LOAD, address, 32'd0};
      end
      LOAD: begin
        job[count] <= eb_word(base + 4 * count);
        count <= count + 1;
        if (count == WORDS - 1) begin
          {oy, ox, k, fy, fx, c, step} <= '0;
          for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) sum[i][j] <= 0;
          state <= RUN;
        end
      end
      RUN: begin // until the last operands have gone through the last cell
        step <= step + 1;
        count <= 0;
        if (c + 1 < channels) c <= c + 1;
        else begin
          c <= 0;
          if (fx + 1 < window_width) fx <= fx + 1;
          else {fx, fy} <= {32'd0, fy + 1};
        end
        if (step == steps + 2 * N - 3) state <= STORE;
      end
      STORE: begin // a pixel a cycle
        for (int j = 0; j < N; j++)
          if (ox + count < out_width && k + j < out_channels)
            eb_store(y + (oy * out_width + ox + count) * out_channels + k + j,
                     result(sum[count][j] + eb_word(bias + 4 * (k + j)), k + j));
        count <= count + 1;
        if (count == N - 1) begin
          for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) sum[i][j] <= 0;
          {fy, fx, c, step} <= '0;
          state <= RUN;
          if (k + N < out_channels) k <= k + N;
          else begin
            k <= 0;
            if (ox + N < out_width) ox <= ox + N;
            else begin
              ox <= 0;
              oy <= oy + 1;
              if (oy + 1 >= out_height) state <= IDLE;
            end
          end
        end
      end
    endcase
    if (reset) state <= IDLE;
  end
endmodule
